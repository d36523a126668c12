-- What an operator sees. KEYS: the record.

local r = read(key)
if r == false then
  return { 'unreadable' }
end
if not r then
  return { 'absent' }
end
local standing, detail = stand(r, now)
local since = r.since
if standing == 'in doubt' then
  since = detail
elseif standing == 'lease ended' then
  standing = 'in flight'
end
local status = r.outcome ~= NONE and r.status
local who, why = unpack(redis.call('HMGET', key, 'w', 'y'))
return { standing, text(r.token), r.attempt, text(between(since, now)), status, who, why }

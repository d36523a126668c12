-- Says that nobody knows whether the effect happened. KEYS: the record.
-- ARGV: now, token, nonce, and with an answer that was sent: status, parts, location, payload.

local key, now = KEYS[1], clock(ARGV[1])
local status = ARGV[4]

local r = read(key)
if r == false then
  return 'unreadable'
end
if not r or not is_held_by(r, tonumber(ARGV[2]), ARGV[3]) then
  return 'superseded'
end
local standing, since = stand(r, now)
if standing == 'in flight' or standing == 'lease ended' then
  since = now
elseif standing ~= 'in doubt' then
  return 'superseded'
elseif r.outcome ~= NONE or (not status and r.state ~= IN_FLIGHT) then
  return 'already applied'
end
if status then
  put_outcome(key, r, status, ARGV[5], ARGV[6], ARGV[7])
end
r.state, r.since = IN_DOUBT, since
write(key, r, now, 'c', packed_course(r))
return 'applied'

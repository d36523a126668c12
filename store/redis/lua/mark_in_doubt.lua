-- Says that nobody knows whether the effect happened. KEYS: the record.
-- ARGV: token, nonce, and with an answer that was sent: its outcome as in complete.lua.

local status = ARGV[3]

local r = read(key)
if r == false then
  return 'unreadable'
end
if not r or not is_held_by(r, tonumber(ARGV[1]), ARGV[2]) then
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
  put_outcome(key, r, status, ARGV[4], ARGV[5], ARGV[6])
end
r.state, r.since = IN_DOUBT, since
write(key, r, now, 'c', packed_course(r))
tell(key)
return 'applied'

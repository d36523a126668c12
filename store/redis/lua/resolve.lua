-- Settles a record in doubt by what somebody found out. KEYS: the record.
-- ARGV: token seen, a nonce nobody has, for how long the old nonce is dead, who, why, and if it happened: the outcome
-- as in complete.lua; if it did not: the fence's token or 0.

local nonce, dead_for = ARGV[2], tonumber(ARGV[3])
local happened = #ARGV > 6

local r = read(key)
if r == false then
  return 'unreadable'
end
if not r then
  return 'missing'
end
if r.nonce == nonce then
  -- The client sent it twice, since the first answer was lost.
  return 'applied'
end
local standing = stand(r, now)
if standing == 'absent' then
  return 'missing'
end
if standing ~= 'in doubt' then
  return standing == 'lease ended' and 'in flight' or standing
end
if r.token ~= tonumber(ARGV[1]) then
  return 'superseded'
end
r.dead = kill(r.dead, r.nonce, dead_for, now)
r.nonce = nonce
if happened then
  put_outcome(key, r, ARGV[6], ARGV[7], ARGV[8], ARGV[9])
  r.state, r.since = COMPLETED, now
else
  free(key, r, now)
  r.token = math.max(r.token, tonumber(ARGV[6]))
end
write(key, r, now, 'r', packed_request(r), 'c', packed_course(r), 'd', r.dead, 'w', ARGV[4], 'y', ARGV[5])
tell(key)
return 'applied'

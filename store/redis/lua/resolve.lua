-- Settles a record in doubt by what somebody found out. KEYS: the record.
-- ARGV: now, token seen, a nonce nobody has, for how long the old nonce is dead, who, why, and if it happened: status, parts,
-- location, payload; if it did not: the fence's token or 0.

local key, now = KEYS[1], clock(ARGV[1])
local nonce, dead_for = ARGV[3], tonumber(ARGV[4])
local happened = #ARGV == 10

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
if r.token ~= tonumber(ARGV[2]) then
  return 'superseded'
end
r.dead = kill(r.dead, r.nonce, dead_for, now, MOST)
r.nonce = nonce
if happened then
  put_outcome(key, r, ARGV[7], ARGV[8], ARGV[9], ARGV[10])
  r.state, r.since = COMPLETED, now
else
  free(key, r, now)
  r.token = math.max(r.token, tonumber(ARGV[7]))
end
write(key, r, now, 'r', packed_request(r), 'c', packed_course(r), 'd', r.dead, 'w', ARGV[5], 'y', ARGV[6])
return 'applied'

-- Holds a claim for longer, if its lease has not ended. Never shortens it. KEYS: the record.
-- ARGV: now, token, nonce, lease.

local key, now = KEYS[1], clock(ARGV[1])

local r = read(key)
if r == false then
  return 'unreadable'
end
if r and stand(r, now) == 'in flight' and is_held_by(r, tonumber(ARGV[2]), ARGV[3]) then
  r.lease_until = math.max(r.lease_until, later(now, tonumber(ARGV[4])))
  write(key, r, now, 'c', packed_course(r))
  return 'applied'
end
return 'superseded'

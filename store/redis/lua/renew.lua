-- Holds a claim for longer, if its lease has not ended. Never shortens it. KEYS: the record.
-- ARGV: token, nonce, lease.

local r = read(key)
if r == false then
  return 'unreadable'
end
if r and stand(r, now) == 'in flight' and is_held_by(r, tonumber(ARGV[1]), ARGV[2]) then
  r.lease_until = math.max(r.lease_until, later(now, tonumber(ARGV[3])))
  write(key, r, now, 'c', packed_course(r))
  return 'applied'
end
return 'superseded'

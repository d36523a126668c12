-- Holds a lease for longer, if it has not ended. Never shortens it. KEYS: the lease. ARGV: token, nonce, lease.

local l = read(key)
if l == false then
  return 'unreadable'
end
if l and is_held_by(l, tonumber(ARGV[1]), ARGV[2]) and runs(l, now) then
  l.lease_until = math.max(l.lease_until, later(now, tonumber(ARGV[3])))
  write(key, l, now)
  return 'applied'
end
return 'superseded'

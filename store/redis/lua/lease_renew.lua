-- Holds a lease for longer, if it has not ended. Never shortens it. KEYS: the lease. ARGV: now, token, nonce, lease.

local key, now = KEYS[1], clock(ARGV[1])

local l = read(key)
if l == false then
  return 'unreadable'
end
if l and is_held_by(l, tonumber(ARGV[2]), ARGV[3]) and runs(l, now) then
  l.lease_until = math.max(l.lease_until, later(now, tonumber(ARGV[4])))
  write(key, l, now)
  return 'applied'
end
return 'superseded'

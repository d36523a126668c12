-- Gives a lease back, late too while nobody took over. KEYS: the lease.
-- ARGV: token, nonce, for how long the nonce is dead.

local nonce = ARGV[2]

local l = read(key)
if l == false then
  return 'unreadable'
end
if not l then
  return 'superseded'
end
if is_dead(l.dead, nonce, now) then
  return 'already applied'
end
if is_held_by(l, tonumber(ARGV[1]), nonce) then
  free(l, now)
  l.dead = kill(l.dead, nonce, tonumber(ARGV[3]), now)
  write(key, l, now)
  tell(key)
  return 'applied'
end
return 'superseded'

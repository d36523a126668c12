-- Gives a lease back, late too while nobody took over. KEYS: the lease.
-- ARGV: now, token, nonce, for how long the nonce is dead.

local key, now = KEYS[1], clock(ARGV[1])
local nonce = ARGV[3]

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
if is_held_by(l, tonumber(ARGV[2]), nonce) then
  free(l, now)
  l.dead = kill(l.dead, nonce, tonumber(ARGV[4]), now, MOST_DEAD)
  write(key, l, now)
  return 'applied'
end
return 'superseded'

-- Gives up an asking, and refuses late copies of it. KEYS: the lease.
-- ARGV: now, nonce, for how long the nonce is dead, the resource's name.

local key, now = KEYS[1], clock(ARGV[1])
local nonce = ARGV[2]

local l = read(key)
if l == false then
  return 'unreadable'
end
l = l or { token = 0, lease_until = now, held = false, dead = '' }
if l.held and l.holder == nonce then
  free(l, now)
end
l.dead = kill(l.dead, nonce, tonumber(ARGV[3]), now, MOST_DEAD)
write(key, l, now, ARGV[4])
return 'applied'

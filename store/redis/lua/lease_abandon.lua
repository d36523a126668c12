-- Gives up an asking, and refuses late copies of it. KEYS: the lease.
-- ARGV: nonce, for how long the nonce is dead, the resource's name.

local nonce = ARGV[1]

local freed = false
local l = read(key)
if l == false then
  return 'unreadable'
end
l = l or { token = 0, lease_until = now, held = false, dead = '' }
if l.held and l.holder == nonce then
  free(l, now)
  freed = true
end
l.dead = kill(l.dead, nonce, tonumber(ARGV[2]), now)
write(key, l, now, ARGV[3])
if freed then
  tell(key)
end
return 'applied'

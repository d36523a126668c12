-- Asks for a lease: the one operation that decides who has it. KEYS: the lease.
-- ARGV: nonce, lease, a token that the granted one must be above or 0, the resource's name.

local nonce, above = ARGV[1], tonumber(ARGV[3])

local l = read(key)
if l == false then
  return { 'unreadable' }
end
if l and is_dead(l.dead, nonce, now) then
  return { 'refused' }
end
local own = l and l.held and l.holder == nonce
if l and runs(l, now) and not own then
  return { 'held', text(l.lease_until - now) }
end
if own and not runs(l, now) then
  -- A late copy brings no lost lease back.
  return { 'refused' }
end
if own and l.token > above then
  -- Nothing changes. Written once more, so that a WAIT behind it waits for the grant too.
  expire(key, kept_until(l), now, MARGIN)
  return { 'granted', text(l.token), text(l.lease_until - now) }
end

if above > later(now, HOLD) then
  return { 'too far' }
end
l = l or { token = 0, dead = '' }
l.token = math.min(math.max(math.max(l.token, above) + 1, now), MOST)
if not own then
  l.held, l.holder, l.lease_until = true, nonce, later(now, tonumber(ARGV[2]))
end
write(key, l, now, ARGV[4])
return { 'granted', text(l.token), text(l.lease_until - now) }

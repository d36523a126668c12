-- Gives up a claim that nobody ran with, and refuses late copies of it. KEYS: the record.
-- ARGV: nonce, for how long the nonce is dead.

local nonce, dead_for = ARGV[1], tonumber(ARGV[2])

local freed = false
local r = read(key)
if r == false then
  return 'unreadable'
end
if not r then
  r = {
    fingerprint = string.rep('\0', 33),
    nonce = string.rep('\0', 16),
    state = RELEASED,
    outcome = NONE,
    status = 0,
    attempt = 0,
    token = 0,
    lease_until = now,
    since = now,
    recovery = NO_LIFE,
    response = 0,
    tombstone = 0,
    dead = '',
  }
elseif is_unfinished(stand(r, now)) and r.nonce == nonce then
  -- One whose life is over stays as it is: it may still be a possible escape.
  free(key, r, now)
  freed = true
end
r.dead = kill(r.dead, nonce, dead_for, now)
write(key, r, now, 'v', FORMAT, 'r', packed_request(r), 'c', packed_course(r), 'd', r.dead)
if freed then
  tell(key)
end
return 'applied'

-- Frees the key: for certain nothing happened. KEYS: the record. ARGV: token, nonce, for how long the nonce is dead.

local token, nonce, dead_for = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local r = read(key)
if r == false then
  return 'unreadable'
end
if not r then
  return 'superseded'
end
if is_dead(r.dead, nonce, now) then
  return 'already applied'
end
if is_unfinished(stand(r, now)) and is_held_by(r, token, nonce) then
  free(key, r, now)
  r.dead = kill(r.dead, nonce, dead_for, now)
  write(key, r, now, 'c', packed_course(r), 'd', r.dead)
  tell(key)
  return 'applied'
end
return 'superseded'

-- Records the outcome. Late is fine while nobody took over; never inserts. KEYS: the record.
-- ARGV: token, nonce, status, whether the payload is kept, payload or nothing, and if there is one, location.

local token, nonce = tonumber(ARGV[1]), ARGV[2]

local r = read(key)
if r == false then
  return 'unreadable'
end
if not r then
  return 'superseded'
end
local standing = stand(r, now)
if is_unfinished(standing) and is_held_by(r, token, nonce) then
  put_outcome(key, r, ARGV[3], ARGV[4], ARGV[5], ARGV[6])
  r.state, r.since = COMPLETED, now
  write(key, r, now, 'c', packed_course(r))
  tell(key)
  return 'applied'
end
if (standing == 'completed' or standing == 'tombstone') and r.nonce == nonce then
  -- Nothing changes. Written once more, so that a WAIT behind it waits for the completion too.
  expire(key, kept_until(r), now, MARGIN)
  return 'already applied'
end
return 'superseded'

-- What claim.lua makes of the claims that are most: of a key that is not there, with nothing special about it. Before its functions, since to
-- make those costs more than all of this; whatever is otherwise goes on there. Answers with the token alone.

if #ARGV == 2 and redis.call('EXISTS', key) == 0 then
  local lease, recovery, response, tombstone = struct.unpack(LIFE, ARGV[2])
  local kept_for = math.max(lease + tombstone, HOLD)
  if now > 0 and now + kept_for <= MOST then
    local course = struct.pack(COURSE, IN_FLIGHT, NONE, 0, 1, now, now + lease, now, recovery, response, tombstone)
    redis.call('HSET', key, 'v', FORMAT, 'r', ARGV[1], 'c', course)
    redis.call('PEXPIRE', key, math.ceil((kept_for + MARGIN) / 1000))
    return now
  end
end

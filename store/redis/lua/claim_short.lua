-- What claim.lua makes of the claims that are most, where nothing about them is special: of a key that is not there, of one whose answer is
-- kept, and of one that somebody else is running. Before its functions, since to make those costs more than all of this; whatever is otherwise
-- goes on there. Answers to the first with the token alone.

if #ARGV == 2 then
  if redis.call('EXISTS', key) == 0 then
    local lease, recovery, response, tombstone = struct.unpack(LIFE, ARGV[2])
    local kept_for = math.max(lease + tombstone, HOLD)
    if now > 0 and now + kept_for <= MOST then
      local course = struct.pack(COURSE, IN_FLIGHT, NONE, 0, 1, now, now + lease, now, recovery, response, tombstone)
      redis.call('HSET', key, 'v', FORMAT, 'r', ARGV[1], 'c', course)
      redis.call('PEXPIRE', key, math.ceil((kept_for + MARGIN) / 1000))
      return now
    end
  else
    local found = redis.pcall('HMGET', key, 'v', 'r', 'c', 'a', 'd', 'l', 'p')
    local request, course = found[2], found[3]
    if found[1] == FORMAT and request and #request == REQUEST_SIZE and course and #course == COURSE_SIZE
      and not found[4] and not found[5] and string.sub(request, 1, 33) == string.sub(ARGV[1], 1, 33) then
      local state, outcome, status, _, token, lease_until, since, recovery, response, tombstone =
        struct.unpack(COURSE, course)
      if recovery ~= NO_LIFE and recovery <= RERUN and token >= 0 then
        if state == COMPLETED and outcome == KEPT and found[7] and since <= now and now < since + tombstone
          and now < since + response and since + response <= MOST then
          return { 'replay', status, found[6], found[7], since, now - since, since + response - now }
        end
        if state == IN_FLIGHT and outcome == NONE and now < lease_until
          and string.sub(request, 34) ~= string.sub(ARGV[1], 34) then
          return { 'in flight', lease_until - now }
        end
      end
    end
  end
end

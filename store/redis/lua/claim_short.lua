-- What claim.lua makes of the claims that are most, where nothing about them is special: of a key that is not there, of one whose answer is
-- kept, and of one that somebody else is running. Of one or of several; whatever is otherwise has no answer here. Without functions, since to make
-- those costs more than all of this. The claim of a key that is not there is answered with the token alone. Those of a group
-- are judged at one time, and have a token each nevertheless.

local answers, room = {}, #KEYS == 1 and MOST or AT_ONCE
if #ARGV == 2 * #KEYS then
  for at = 1, #KEYS do
    local key, asked, life, answer = KEYS[at], ARGV[2 * at - 1], ARGV[2 * at], false
    if redis.call('EXISTS', key) == 0 then
      local lease, recovery, response, tombstone = struct.unpack(LIFE, life)
      local kept_for = math.max(lease + tombstone, HOLD)
      if now > 0 and now + kept_for <= MOST then
        local token = now + at - 1
        local course = struct.pack(COURSE, IN_FLIGHT, NONE, 0, 1, token, now + lease, now, recovery, response, tombstone)
        redis.call('HSET', key, 'v', FORMAT, 'r', asked, 'c', course)
        redis.call('PEXPIRE', key, math.ceil((kept_for + MARGIN) / 1000))
        answer = token
      end
    else
      local found = redis.pcall('HMGET', key, 'v', 'r', 'c', 'a', 'd', 'l', 'p')
      local request, course = found[2], found[3]
      if found[1] == FORMAT and request and #request == REQUEST_SIZE and course and #course == COURSE_SIZE
        and not found[4] and not found[5] and string.sub(request, 1, 33) == string.sub(asked, 1, 33) then
        local state, outcome, status, _, token, lease_until, since, recovery, response, tombstone =
          struct.unpack(COURSE, course)
        if recovery ~= NO_LIFE and recovery <= RERUN and token >= 0 then
          if state == COMPLETED and outcome == KEPT and found[7] and since <= now and now < since + tombstone
            and now < since + response and since + response <= MOST then
            room = room - #found[7]
            answer = room >= 0 and { 'replay', status, found[6], found[7], since, now - since, since + response - now }
          elseif state == IN_FLIGHT and outcome == NONE and now < lease_until
            and string.sub(request, 34) ~= string.sub(asked, 34) then
            answer = { 'in flight', lease_until - now }
          end
        end
      end
    end
    answers[at] = answer
  end
end

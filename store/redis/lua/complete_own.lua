-- What complete.lua makes of the completions that are most: by who holds the claim, before its lease has ended, with a payload that is kept. Of one
-- or of several; whatever is otherwise has no answer here. Without functions, since to make those costs more than all of this. The expiry stays as
-- the claim or its last renewal has set it, for a completion at the end of the lease: by the rest of the lease too late, no more than the margin.
-- Of several each has a location, which is empty if there is none.

local answers, each, none = {}, #ARGV / #KEYS, #KEYS > 1 and '' or nil
for at = 1, #KEYS do
  local key = KEYS[at]
  local token, nonce, status, kept, payload, location = unpack(ARGV, each * (at - 1) + 1, each * at)
  local found, answer = redis.pcall('HMGET', key, 'v', 'r', 'c'), false
  local request, course = found[2], found[3]
  if found[1] == FORMAT and request and #request == REQUEST_SIZE and course and #course == COURSE_SIZE
    and tonumber(kept) == KEPT then
    local state, outcome, _, attempt, held, lease_until, _, recovery, response, tombstone = struct.unpack(COURSE, course)
    if state == IN_FLIGHT and outcome == NONE and recovery ~= NO_LIFE and recovery <= RERUN and now < lease_until
      and lease_until - now <= MARGIN and held == tonumber(token) and string.sub(request, 34) == nonce then
      course = struct.pack(COURSE, COMPLETED, KEPT, status, attempt, held, lease_until, now, recovery, response, tombstone)
      if location ~= none then
        redis.call('HSET', key, 'c', course, 'p', payload, 'l', location)
      else
        redis.call('HSET', key, 'c', course, 'p', payload)
      end
      if TELLS then
        redis.pcall('PUBLISH', key, '')
      end
      answer = 'applied'
    end
  end
  answers[at] = answer
end

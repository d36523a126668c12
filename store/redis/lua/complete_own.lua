-- What complete.lua makes of the completions that are most: by who holds the claim, before its lease has ended, with a payload that is kept; and
-- without a key time or dead nonces. Before its functions, since to make those costs more than all of this; whatever is otherwise goes on there.

local found = redis.pcall('HMGET', key, 'v', 'r', 'c', 'a', 'd')
local request, course, payload, location = found[2], found[3], ARGV[5], ARGV[6]
if found[1] == FORMAT and request and #request == REQUEST_SIZE and course and #course == COURSE_SIZE
  and not found[4] and not found[5] and tonumber(ARGV[4]) == KEPT then
  local state, outcome, _, attempt, token, lease_until, _, recovery, response, tombstone = struct.unpack(COURSE, course)
  local kept_for = math.max(tombstone, token + HOLD - now)
  if state == IN_FLIGHT and outcome == NONE and recovery ~= NO_LIFE and recovery <= RERUN and now < lease_until
    and token == tonumber(ARGV[1]) and string.sub(request, 34) == ARGV[2] and now + kept_for <= MOST then
    course = struct.pack(COURSE, COMPLETED, KEPT, ARGV[3], attempt, token, lease_until, now, recovery, response, tombstone)
    if location then
      redis.call('HSET', key, 'c', course, 'p', payload, 'l', location)
    else
      redis.call('HSET', key, 'c', course, 'p', payload)
    end
    redis.call('PEXPIRE', key, math.ceil((kept_for + MARGIN) / 1000))
    if TELLS then
      redis.pcall('PUBLISH', key, '')
    end
    return 'applied'
  end
end

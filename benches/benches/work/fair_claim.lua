-- The least that a claim is: of a key that nobody has, by the server's clock, with an expiry. Answers with the token.
-- ARGV: fingerprint and nonce, lease.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local found = redis.call('HMGET', KEYS[1], 'request', 'course')
if found[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'request', ARGV[1], 'course', struct.pack('>Bi8i8', 1, now, now + ARGV[2]))
redis.call('PEXPIRE', KEYS[1], 90000000)
return now

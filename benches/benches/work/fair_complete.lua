-- The least that a completion is: by who holds the claim, at the server's time, with a new expiry.
-- ARGV: token, nonce, status, location, payload.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local request, course = unpack(redis.call('HMGET', KEYS[1], 'request', 'course'))
local state, token = struct.unpack('>Bi8', course)
if state ~= 1 or token ~= tonumber(ARGV[1]) or string.sub(request, 34) ~= ARGV[2] then
  return 0
end
course = struct.pack('>Bi8i8I2', 2, token, now, ARGV[3])
redis.call('HSET', KEYS[1], 'course', course, 'location', ARGV[4], 'payload', ARGV[5])
redis.call('PEXPIRE', KEYS[1], 90000000)
return 1

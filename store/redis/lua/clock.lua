-- The time is the server's.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

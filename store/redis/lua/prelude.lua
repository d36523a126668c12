-- What every script begins with: its key, and the numbers that all share. Before it stand TELLS, whether somebody may listen, and the time: now.
--
-- Times are microseconds since 1970 and durations microseconds. Lua counts in doubles, which are exact below 2^53;
-- every sum is kept there. Redis writes a whole number exactly where it is an argument or in an answer; as text it goes through `text`,
-- since `..` and tostring print 14 digits.

local MOST = 9007199254740991
-- What is kept for a token stays so much longer than the token's own time.
local HOLD = 3600000000

local key = KEYS[1]

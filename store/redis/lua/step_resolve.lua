-- Settles a step whose outcome is unknown by what somebody found out. KEYS: the record.
-- ARGV: label, the last call that was seen, a nonce of this message, who, why, and if it happened: whether its result is kept, the
-- result.

local label, nonce = ARGV[1], ARGV[3]
local happened = #ARGV == 7

local known, refused = read_kept_step(key, now, label)
if not known then
  return refused
end
local s = known.step
if not s then
  return 'missing'
end
if s.resolver == nonce then
  -- The client sent it twice, since the first answer was lost.
  return 'applied'
end
if s.call ~= tonumber(ARGV[2]) then
  return 'superseded'
end
local standing = step_standing(s, now)
if happened and (standing == 'unknown' or standing == 'retryable') then
  s.state = SUCCEEDED
  put_result(s, ARGV[6], ARGV[7])
elseif not happened and standing == 'unknown' then
  s.state, s.cleared, s.open = RETRYABLE, s.call, 0
else
  return standing
end
s.since, s.resolver = now, nonce
write_step(s)
redis.call('HSET', STEPS, 'w' .. label, ARGV[4], 'y' .. label, ARGV[5])
keep_steps(key, known.record, now)
return 'applied'

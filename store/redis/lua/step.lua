-- The steps of a record, in its hash. LABEL is a step's label, NONCE what a call of it was begun with; no label is empty or holds a zero.
--
-- sLABEL    the step: request, state, result, since, last call, its nonce, token, deadline and end of the quiet period, whether the
--           provider's window has begun and when, calls that may have happened, calls said not to have, whose resolution
-- rLABEL    its result, where one is kept
-- wLABEL, yLABEL  who resolved it, and why
-- cLABEL 0 NONCE  a call: number, token, begun at, ended at, how it ended, result
-- eLABEL 0 NONCE  its result, where one is kept; or why
--
-- A result, like an outcome: none, without its bytes, with them.

local STEPS = KEYS[1]
local STEP, STEP_SIZE = '>c33BBi8I4c16i8i8i8Bi8I4I4c16', 120
local CALL, CALL_SIZE = '>I4i8i8i8BB', 30
local NOBODY = string.rep('\0', 16)
local MOST_CALLS = 4294967295

local CALLING, SUCCEEDED, FAILED, UNKNOWN, RETRYABLE = 1, 2, 3, 4, 5
-- How a call ended: not yet, nobody knows, nothing was sent, refused, done.
local NO_END, LOST, NOT_SENT, REFUSED, DONE = 0, 1, 2, 3, 4
-- Better evidence replaces weaker.
local STRENGTH = { [NO_END] = -1, [LOST] = 0, [NOT_SENT] = 1, [REFUSED] = 1, [DONE] = 2 }

local function call_name(label, nonce)
  return label .. '\0' .. nonce
end

-- A step as its fields say it; false when it cannot be read.
local function unpacked_step(label, packed, result)
  if #packed ~= STEP_SIZE then
    return false
  end
  local s = { label = label, result = result }
  local windowed, start
  s.request, s.state, s.kept, s.since, s.call, s.nonce, s.token, s.deadline, s.quiet_until, windowed, start, s.open,
    s.cleared, s.resolver = struct.unpack(STEP, packed)
  if windowed == 1 then
    s.window_start = start
  end
  local may_have_none = s.state ~= SUCCEEDED
  local may_have_one = s.state == CALLING or s.state == SUCCEEDED or s.state == FAILED
  if s.state < CALLING or s.state > RETRYABLE or s.kept > KEPT or s.token < 1 or (s.kept == KEPT and not result)
    or (s.kept == NONE and not may_have_none) or (s.kept ~= NONE and not may_have_one) then
    return false
  end
  return s
end

-- A call likewise.
local function unpacked_call(packed, text)
  if #packed ~= CALL_SIZE then
    return false
  end
  local c = {}
  c.number, c.token, c.begun_at, c.ended_at, c.ending, c.kept = struct.unpack(CALL, packed)
  local has_result = c.ending == REFUSED or c.ending == DONE
  if c.ending > DONE or c.kept > KEPT or c.token < 0 or has_result ~= (c.kept ~= NONE) then
    return false
  end
  if not text and (c.kept == KEPT or c.ending == LOST or c.ending == NOT_SENT) then
    return false
  end
  c.text = text
  return c
end

-- What is known of a step and of the call with this nonce, where there is one: each may be missing. False when it cannot be read.
local function read_step(label, nonce)
  local call = call_name(label, nonce or '')
  local step, result, packed, text =
    unpack(redis.call('HMGET', STEPS, 's' .. label, 'r' .. label, 'c' .. call, 'e' .. call))
  local known = {}
  if step then
    known.step = unpacked_step(label, step, result)
  end
  if nonce and packed then
    known.call = unpacked_call(packed, text)
  end
  return known.step ~= false and known.call ~= false and known
end

-- The same beside its record, which must still keep its steps: nil and why not otherwise.
local function read_kept_step(key, now, label, nonce)
  local r = read(key)
  if r == false then
    return nil, 'unreadable'
  end
  if not r or not keeps_steps(r, now) then
    return nil, 'missing'
  end
  local known = read_step(label, nonce)
  if not known then
    return nil, 'unreadable'
  end
  known.record = r
  return known
end

-- What time has made of its state.
local function step_standing(s, now)
  if s.state == CALLING and now < s.quiet_until then
    return 'calling'
  end
  if s.state == SUCCEEDED or (s.state == CALLING and s.kept ~= NONE) then
    return 'succeeded'
  end
  if s.state == FAILED then
    return 'failed'
  end
  return s.state == RETRYABLE and 'retryable' or 'unknown'
end

local function step_age(s, now)
  if s.state == CALLING and now >= s.quiet_until then
    return between(s.quiet_until, now)
  end
  return between(s.since, now)
end

-- A word, and how the step stands as the store reads it: state, age, for how long others are kept away, result.
local function told(word, s, now, ...)
  local standing = step_standing(s, now)
  local kept, result = NONE, false
  if standing == 'succeeded' or standing == 'failed' then
    kept, result = s.kept, s.kept == KEPT and s.result
  end
  return { word, standing, text(step_age(s, now)), text(between(now, s.quiet_until)), kept, result, ... }
end

-- Puts a result in the place of another.
local function put_result(s, kept, bytes)
  s.kept = tonumber(kept)
  s.result = s.kept == KEPT and bytes
  if s.result then
    redis.call('HSET', STEPS, 'r' .. s.label, bytes)
  else
    redis.call('HDEL', STEPS, 'r' .. s.label)
  end
end

local function write_step(s)
  local packed = struct.pack(STEP, s.request, s.state, s.kept, s.since, s.call, s.nonce, s.token, s.deadline,
    s.quiet_until, s.window_start and 1 or 0, s.window_start or 0, s.open, s.cleared, s.resolver)
  redis.call('HSET', STEPS, 's' .. s.label, packed)
end

local function write_call(label, nonce, c)
  local packed = struct.pack(CALL, c.number, c.token, c.begun_at, c.ended_at, c.ending, c.kept)
  local name = call_name(label, nonce)
  redis.call('HSET', STEPS, 'c' .. name, packed)
  if c.text then
    redis.call('HSET', STEPS, 'e' .. name, c.text)
  end
end

-- Says that the record has steps, which may keep it for longer.
local function keep_steps(key, r, now)
  if not r.steps then
    r.steps = '1'
    redis.call('HSET', key, 's', r.steps)
  end
  expire(key, kept_until(r), now, MARGIN)
end

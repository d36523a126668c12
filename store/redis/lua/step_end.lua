-- Logs how a call ended, whoever reports it and however late, and what that makes of its step. KEYS: the record.
-- ARGV: label, the call's nonce, how it ended, whether its result is kept, the result or why.

local label, nonce = ARGV[1], ARGV[2]
local ending, kept, result = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local known, refused = read_kept_step(key, now, label, nonce)
if not known then
  return { refused }
end
local r = known.record
local s, c = known.step, known.call
if not c and ending == NOT_SENT then
  -- A late copy of its asking begins nothing.
  write_call(label, nonce,
    { number = 0, token = 0, begun_at = now, ended_at = now, ending = ending, kept = kept, text = result })
  keep_steps(key, r, now)
  return { 'never began' }
end
if c and c.number == 0 then
  -- Nothing changes. Written once more, so that a WAIT behind it waits for what is known too. Likewise below.
  expire(key, kept_until(r), now, MARGIN)
  return { 'never began' }
end
if not s or not c then
  return { 'missing' }
end
if STRENGTH[c.ending] >= STRENGTH[ending] then
  expire(key, kept_until(r), now, MARGIN)
  return told('logged', s, now)
end

local standing = step_standing(s, now)
local is_last = c.number == s.call
if STRENGTH[ending] > 0 and STRENGTH[c.ending] < 1 and c.number > s.cleared then
  s.open = math.max(s.open - 1, 0)
end
-- What the step becomes, whether this result becomes the step's, and what somebody should look at.
local state, is_result, alarm = nil, false, false
if ending == DONE then
  if standing == 'calling' and not is_last then
    -- Another call is being made; this one counts when that one ends otherwise.
    is_result = s.kept == NONE
    alarm = 'done while calling'
  elseif standing == 'calling' then
    state, is_result = SUCCEEDED, true
    alarm = s.kept ~= NONE and 'done twice'
  elseif standing == 'succeeded' then
    state = SUCCEEDED
    if c.number <= s.cleared then
      alarm = 'done after all'
    elseif not is_last or s.resolver == NOBODY then
      alarm = 'done twice'
    end
    -- Else somebody said that it happened: this is what was found out.
  else
    state, is_result = SUCCEEDED, true
    alarm = standing ~= 'unknown' and 'done after all'
  end
elseif standing == 'calling' and is_last then
  if s.kept ~= NONE then
    -- An earlier call that was done outweighs what became of this one.
    state = SUCCEEDED
  elseif ending == LOST or s.open > 0 then
    state = UNKNOWN
  else
    state, is_result = FAILED, ending == REFUSED
  end
elseif standing == 'unknown' and ending ~= LOST and s.open == 0 then
  state, is_result = FAILED, ending == REFUSED
end

if ending == NOT_SENT and state == FAILED and is_last and s.window_start == c.begun_at then
  -- This call began the window, and nothing reached the provider.
  s.window_start = nil
end
if state and state ~= s.state then
  s.state, s.since = state, now
end
if is_result then
  put_result(s, kept, result)
end
c.ended_at, c.ending, c.kept, c.text = now, ending, kept, result
write_step(s)
write_call(label, nonce, c)
keep_steps(key, r, now)
return told('logged', s, now, alarm)

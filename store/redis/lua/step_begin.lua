-- Asks whether a call may be made. KEYS: the record.
-- ARGV: the attempt's token and nonce, label, request, the call's nonce, timeout, quiet period, what the lease must outlast, for how
-- long the provider knows the step's key, whether the store is full.

local label, request, nonce = ARGV[3], ARGV[4], ARGV[5]

local r = read(key)
if r == false then
  return { 'unreadable' }
end
if not r or not is_held_by(r, tonumber(ARGV[1]), ARGV[2]) or stand(r, now) ~= 'in flight' then
  return { 'superseded' }
end
local known = read_step(label, nonce)
if not known then
  return { 'unreadable' }
end
local s, c = known.step, known.call
if s and s.request ~= request then
  return { 'request changed' }
end
if c then
  if s and s.nonce == nonce and c.ending == NO_END and step_standing(s, now) == 'calling' then
    -- Nothing changes. Written once more, so that a WAIT behind it waits for the call too.
    expire(key, kept_until(r), now, MARGIN)
    return { 'go', c.number, text(between(s.window_start or now, now)) }
  end
  return { 'over' }
end

local function may_follow(window)
  local standing = step_standing(s, now)
  if standing == 'unknown' then
    return window and (not s.window_start or now < later(s.window_start, window))
  end
  return standing == 'retryable' or (standing == 'failed' and s.kept == NONE)
end

if s and not may_follow(tonumber(ARGV[9])) then
  return told('stands', s, now, s.call, text(s.token))
end
local lease_left = r.lease_until - now
if lease_left <= tonumber(ARGV[8]) then
  return { 'lease too short', text(lease_left) }
end
if ARGV[10] == '1' then
  return { 'full' }
end

s = s or { label = label, request = request, call = 0, open = 0, cleared = 0, resolver = NOBODY }
s.state, s.kept, s.since = CALLING, NONE, now
s.call = math.min(s.call + 1, MOST_CALLS)
s.nonce, s.token = nonce, r.token
s.deadline = later(now, tonumber(ARGV[6]))
s.quiet_until = later(s.deadline, tonumber(ARGV[7]))
s.window_start = s.window_start or now
s.open = math.min(s.open + 1, MOST_CALLS)
write_step(s)
write_call(label, nonce, { number = s.call, token = r.token, begun_at = now, ended_at = 0, ending = NO_END, kept = NONE })
keep_steps(key, r, now)
return { 'go', s.call, text(between(s.window_start, now)) }

-- A record, read, judged and written.

-- The record: nil when there is none, false when it cannot be read.
local function read(key)
  local found = fields(key, 'v', 'r', 'c', 'a', 'd', 's')
  if not found then
    return found
  end
  local version, request, course, age, dead, steps = unpack(found)
  if version ~= FORMAT or not request or #request ~= REQUEST_SIZE or not course or #course ~= COURSE_SIZE then
    return false
  end
  local r = { dead = dead or '', steps = steps }
  if #r.dead % DEAD_SIZE ~= 0 then
    return false
  end
  r.fingerprint, r.nonce = struct.unpack(REQUEST, request)
  r.state, r.outcome, r.status, r.attempt, r.token, r.lease_until, r.since, r.recovery, r.response, r.tombstone =
    struct.unpack(COURSE, course)
  if r.state < IN_FLIGHT or r.state > RELEASED or r.outcome > KEPT or r.recovery > RERUN or r.token < 0
    or (r.state == COMPLETED and r.outcome == NONE) or (r.state ~= RELEASED and r.recovery == NO_LIFE) then
    return false
  end
  if age then
    if #age ~= AGE_SIZE then
      return false
    end
    local dated, max_age, drift, key_time = struct.unpack(AGE, age)
    r.max_age, r.drift = max_age, drift
    if dated == 1 then
      r.key_time = key_time
    end
  end
  return r
end

local function packed_request(r)
  return struct.pack(REQUEST, r.fingerprint, r.nonce)
end

local function packed_course(r)
  return struct.pack(COURSE, r.state, r.outcome, r.status, r.attempt, r.token, r.lease_until, r.since, r.recovery,
    r.response, r.tombstone)
end

local function packed_age(r)
  return struct.pack(AGE, r.key_time and 1 or 0, r.max_age, r.drift, r.key_time or 0)
end

-- Until when a duplicate could be young enough to run.
local function key_kept_until(r)
  return later(later(r.key_time, r.max_age), r.drift)
end

local function state_end(r)
  if r.recovery == NO_LIFE or r.state == RELEASED then
    return -MOST
  end
  local last = later(r.state == COMPLETED and r.since or r.lease_until, r.tombstone)
  if r.key_time then
    last = math.max(last, key_kept_until(r))
  end
  return last
end

-- Until when steps keep a released record. Other states keep theirs as long as they last.
local function steps_kept_until(r)
  if r.state ~= RELEASED or r.recovery == NO_LIFE then
    return -MOST
  end
  return later(r.since, r.tombstone)
end

-- It may be deleted strictly after this. There are no floors here, so the record of a time-ordered key stays longer by
-- what the clock may step back.
local function kept_until(r)
  local kept = math.max(state_end(r), dead_until(r.dead))
  if r.token > 0 then
    kept = math.max(kept, later(r.token, HOLD))
  end
  if r.key_time and r.state ~= RELEASED then
    kept = math.max(kept, later(key_kept_until(r), HOLD))
  end
  if r.steps then
    kept = math.max(kept, steps_kept_until(r))
  end
  return kept
end

-- What time has made of the state; and, in doubt, since when; absent, whether it was in doubt.
local function stand(r, now)
  if r.state == RELEASED then
    return 'released'
  end
  if r.state == IN_FLIGHT and now < r.lease_until then
    return 'in flight'
  end
  if r.state == IN_FLIGHT and r.recovery == RERUN then
    return 'lease ended'
  end
  if now >= state_end(r) then
    return 'absent', r.state ~= COMPLETED
  end
  if r.state == COMPLETED then
    if r.outcome == KEPT and now < later(r.since, r.response) then
      return 'completed'
    end
    return 'tombstone'
  end
  return 'in doubt', r.state == IN_FLIGHT and r.lease_until or r.since
end

-- Whether its steps still count. When they do not, whoever claims the key anew begins without them.
local function keeps_steps(r, now)
  local standing = stand(r, now)
  if standing == 'released' then
    return now <= steps_kept_until(r)
  end
  return standing ~= 'absent'
end

-- An attempt has begun and has not ended in a known way.
local function is_unfinished(standing)
  return standing == 'in flight' or standing == 'lease ended' or standing == 'in doubt'
end

local function is_held_by(r, token, nonce)
  return r.token == token and r.nonce == nonce
end

-- Writes what changed and says anew when Redis may forget the key.
local function write(key, r, now, ...)
  redis.call('HSET', key, ...)
  expire(key, kept_until(r), now, MARGIN)
end

-- Takes the outcome away, where there is one.
local function drop_outcome(key, r)
  if r.outcome ~= NONE then
    redis.call('HDEL', key, 'l', 'p')
  end
  r.outcome, r.status = NONE, 0
end

-- Puts an outcome in the place of another: its status, whether its payload is kept, that, and its location if it has one.
local function put_outcome(key, r, status, kept, payload, location)
  drop_outcome(key, r)
  r.outcome, r.status = tonumber(kept), tonumber(status)
  if location then
    redis.call('HSET', key, 'l', location)
  end
  if r.outcome == KEPT then
    redis.call('HSET', key, 'p', payload)
  end
end

local function free(key, r, now)
  drop_outcome(key, r)
  r.state, r.since = RELEASED, now
end

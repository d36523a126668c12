-- The one operation that decides who runs. KEYS: the record.
-- ARGV: fingerprint and nonce; lease, recovery, response window and tombstone window. If there is any of it, also: maximum age, drift,
-- key time, floor, whether the store is full, how long hits may keep a tombstone from its completion on, if they renew its window.

local fingerprint, nonce = struct.unpack(REQUEST, ARGV[1])
local lease, recovery, response, tombstone = struct.unpack(LIFE, ARGV[2])
local max_age, drift, key_time = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local r = read(key)
if r == false then
  return { 'unreadable' }
end
if r and is_dead(r.dead, nonce, now) then
  return { 'refused' }
end

local standing, detail = 'absent', false
if r then
  standing, detail = stand(r, now)
end
if standing ~= 'absent' and standing ~= 'released' then
  if string.byte(r.fingerprint) ~= string.byte(fingerprint) then
    return { 'unreadable' }
  end
  if r.fingerprint ~= fingerprint then
    return { 'mismatch' }
  end
end

if standing == 'completed' then
  local location, payload = unpack(redis.call('HMGET', key, 'l', 'p'))
  if not payload then
    return { 'unreadable' }
  end
  local left = later(r.since, r.response) - now
  return { 'replay', r.status, location, payload, text(r.since), text(between(r.since, now)), text(left) }
end
if standing == 'tombstone' then
  local cap = tonumber(ARGV[8])
  local kept = cap and math.min(between(r.since, now) + tombstone, cap)
  -- What gains next to nothing is not written.
  if kept and kept - r.tombstone >= tombstone / 100 then
    r.tombstone = kept
    write(key, r, now, 'c', packed_course(r))
  end
  return { 'executed', r.status, redis.call('HGET', key, 'l'), text(r.since), text(between(r.since, now)) }
end
if (standing == 'in flight' or standing == 'lease ended') and r.nonce == nonce then
  -- Nothing changes. Written once more, so that a WAIT behind it waits for the grant too.
  expire(key, kept_until(r), now, MARGIN)
  return { 'granted', text(r.token), r.attempt, text(between(now, r.lease_until)), r.recovery, 0 }
end
if standing == 'in doubt' then
  if r.token == 0 then
    return { 'unreadable' }
  end
  local status, location, payload = false, false, false
  if r.outcome ~= NONE then
    status = r.status
    location, payload = unpack(redis.call('HMGET', key, 'l', 'p'))
  end
  local own = r.nonce == nonce and 1 or 0
  return { 'in doubt', text(detail), text(between(detail, now)), r.attempt, text(r.token), own, status, location, payload }
end
if standing == 'in flight' then
  return { 'in flight', text(r.lease_until - now) }
end

if standing ~= 'lease ended' then
  local floor = tonumber(ARGV[6]) or -MOST
  local oldest, latest = max_age, drift
  if standing == 'released' and r.recovery ~= NO_LIFE then
    oldest, latest = r.max_age, r.drift
  elseif standing == 'absent' and r and r.key_time then
    -- As if it had been purged just now.
    floor = math.max(floor, r.key_time)
  end
  if oldest and key_time then
    if key_time <= math.max(now - oldest, floor) then
      return { 'too old' }
    end
    if key_time > now + latest then
      return { 'from the future' }
    end
  end
end
if standing == 'absent' and ARGV[7] == '1' then
  return { 'full' }
end

local new = {
  fingerprint = fingerprint,
  nonce = nonce,
  state = IN_FLIGHT,
  outcome = NONE,
  status = 0,
  attempt = 1,
  token = math.min(math.max(r and r.token + 1 or 1, now), MOST),
  lease_until = later(now, lease),
  since = now,
  dead = r and r.dead or '',
}
if r and standing ~= 'absent' then
  new.attempt = math.min(r.attempt + 1, 4294967295)
end
if r and standing ~= 'absent' and r.recovery ~= NO_LIFE then
  new.recovery, new.response, new.tombstone = r.recovery, r.response, r.tombstone
  new.max_age, new.drift, new.key_time = r.max_age, r.drift, r.key_time
else
  new.recovery, new.response, new.tombstone = recovery, response, tombstone
  new.max_age, new.drift = max_age, drift
end
if new.max_age then
  new.key_time = new.key_time or key_time
end

if r and r.steps and keeps_steps(r, now) then
  new.steps = r.steps
  redis.call('HDEL', key, 'a', 'd', 'l', 'p', 'w', 'y')
elseif r then
  redis.call('DEL', key)
end
local changed = { 'v', FORMAT, 'r', packed_request(new), 'c', packed_course(new) }
if new.max_age then
  changed[#changed + 1], changed[#changed + 2] = 'a', packed_age(new)
end
if new.dead ~= '' then
  changed[#changed + 1], changed[#changed + 2] = 'd', new.dead
end
if new.steps then
  changed[#changed + 1], changed[#changed + 2] = 's', new.steps
end
write(key, new, now, unpack(changed))
local escape = standing == 'absent' and detail and 1 or 0
return { 'granted', text(new.token), new.attempt, text(lease), new.recovery, escape }

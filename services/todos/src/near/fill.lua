-- Here is a list. KEYS: todos:state, todos:version, the list's key. ARGV: the epoch, timeline and version it is of, how long
-- to keep it in milliseconds, its bytes. Answers 1 if it was taken: not if the state was lost since the list was looked for,
-- nor if the store has changed since.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'timeline', 'version')
local timeline, version = tonumber(state[2] or 0), tonumber(state[3] or -1)
local of_timeline, of_version = tonumber(ARGV[2]), tonumber(ARGV[3])
local is_older = of_timeline < timeline or (of_timeline == timeline and of_version < version)
if state[1] ~= ARGV[1] or is_older then
  return 0
end
if of_timeline ~= timeline or of_version ~= version then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if field ~= 'epoch' and field ~= 'timeline' and field ~= 'version' then
      redis.call('UNLINK', field)
      redis.call('HDEL', KEYS[1], field)
    end
  end
  redis.call('HSET', KEYS[1], 'timeline', ARGV[2], 'version', ARGV[3])
  redis.call('SET', KEYS[2], ARGV[3])
end
redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[4])
redis.call('HSET', KEYS[1], KEYS[3], '1')
return 1

-- Here is a list. KEYS: todos:state, todos:version, the list's key. ARGV: the epoch and version it is of, how long to keep
-- it in milliseconds, its bytes. Answers 1 if it was taken: not if the state was lost since the list was looked for, nor if
-- the store has changed since.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'version')
if state[1] ~= ARGV[1] or tonumber(state[2]) > tonumber(ARGV[2]) then
  return 0
end
if tonumber(state[2]) < tonumber(ARGV[2]) then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if field ~= 'epoch' and field ~= 'version' then
      redis.call('UNLINK', field)
      redis.call('HDEL', KEYS[1], field)
    end
  end
  redis.call('HSET', KEYS[1], 'version', ARGV[2])
  redis.call('SET', KEYS[2], ARGV[2])
end
redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[3])
redis.call('HSET', KEYS[1], KEYS[3], '1')
return 1

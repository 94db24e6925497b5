SELECT CASE server WHEN 'batcher' THEN 'the batcher, records received, one core' WHEN 'slots' THEN
  'slots, messages received, two cores' ELSE 'slots, messages sent, two cores' END AS 'what is counted',
  printf('%.0f', rps / 1e6) AS 'millions per second'
FROM summaries
WHERE record = '2026-11-26-batcher'
ORDER BY rps DESC

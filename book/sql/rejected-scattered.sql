SELECT cell || ' bytes' AS 'a record', 'a turn to one partition' AS 'records', printf('%.2f', ratio) AS
  'over Kafka''s producer', interval_2 AS 'interval', covers
FROM intervals
WHERE record = '2026-11-22-kafka' AND server = 'sink'
UNION ALL
-- The second and the last but one of nine pairs.
SELECT e.key || ' bytes', 'scattered', printf('%.2f', e.value ->> 'median'), printf('%.2f to %.2f', e.value ->>
  'low', e.value ->> 'high'), '96.1 %'
FROM documents, json_each(document, '$.results') AS e
WHERE record = '2026-11-22-kafka-scattered'
ORDER BY 1, 2

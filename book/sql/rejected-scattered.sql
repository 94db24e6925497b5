SELECT cell || ' bytes' AS 'a record', 'a turn to one partition' AS 'records', printf('%.2f', ratio) AS
  'over Kafka''s producer', printf('%.2f to %.2f', low, high) AS '95 %'
FROM comparisons
WHERE record = '2026-11-22-kafka' AND server = 'sink'
UNION ALL
SELECT e.key || ' bytes', 'scattered', printf('%.2f', e.value ->> 'median'), printf('%.2f to %.2f', e.value ->>
  'low', e.value ->> 'high')
FROM documents, json_each(document, '$.results') AS e
WHERE record = '2026-11-22-kafka-scattered'
ORDER BY 1, 2

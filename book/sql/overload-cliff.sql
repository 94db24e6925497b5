WITH f AS (SELECT e.value ->> 'limit' AS l, e.value ->> 'goodput_per_s' AS good, e.value ->> 'answered_per_s' AS
  answered
    FROM documents, json_each(document, '$.derived.sweep') AS e
    WHERE record = '2026-11-21-stress' AND e.value ->> 'mechanism' != 'with its queue')
SELECT l AS 'limit', good AS 'per second', 'in time' AS what
FROM f
UNION ALL
SELECT l, answered, 'answered'
FROM f
ORDER BY 1

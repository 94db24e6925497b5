WITH old AS (SELECT e.value ->> 'mechanism' AS server, e.value ->> 'share' AS share, e.value ->> 'law' AS law
    FROM documents, json_each(document, '$.derived.open') AS e
    WHERE record = '2026-11-21-stress' AND e.value ->> 'k' = 10)
SELECT server AS mechanism, printf('%.1f', 100 * old.share) AS '21 November', printf('%.1f', 100 * new.of_peak) AS
  'today', iif(new.law IS NULL, '–', printf('%.1f', 100 * new.law)) AS 'the law today'
FROM goodput new
JOIN old USING (server)
WHERE new.record = '2026-11-22-stress' AND new.cell = '10x'
ORDER BY new.of_peak

WITH old AS (SELECT e.value ->> 'phase' AS phase, max(e.value ->> 'converged_s') AS s, max(e.value ->> 'share') AS
  share
    FROM documents, json_each(document, '$.derived.subjects') AS e
    WHERE record = '2026-11-21-adaptive' AND e.value ->> 'subject' = 'gradient' GROUP BY 1)
SELECT new.step AS phase, printf('%.1f', old.s) AS 'the search, s', iif(new.after_s IS NULL, 'not', printf('%.1f',
  new.after_s)) AS 'today, s', printf('%.0f', 100 * old.share) AS 'the search, % of the best', printf('%.0f', 100 *
  new.of_best) AS 'today, % of the best'
FROM steps new
JOIN old ON old.phase = new.step
WHERE new.record = '2026-11-22-adaptive' AND new.cell = 'course' AND new.server = 'gradient'
ORDER BY new.rowid

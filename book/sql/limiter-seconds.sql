WITH f AS (SELECT rowid AS at, step AS phase, server AS s, iif(after_s IS NULL, 'not', printf('%.1f', after_s)) AS t
    FROM steps
    WHERE record = '2026-11-22-adaptive' AND cell = 'course' AND step NOT LIKE 'down%')
SELECT phase, max(t) FILTER (WHERE s = 'gradient') AS gradient, max(t) FILTER (WHERE s = 'aimd') AS aimd, max(t)
  FILTER (WHERE s = 'hill-climb') AS 'hill-climb', max(t) FILTER (WHERE s = 'fixed-4') AS 'fixed 4', max(t) FILTER
  (WHERE s = 'fixed-64') AS 'fixed 64'
FROM f
GROUP BY phase
ORDER BY min(at)

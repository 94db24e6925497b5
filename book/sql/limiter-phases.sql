SELECT step AS phase, 100 * of_best AS '% of the best fixed', server AS limiter
FROM steps
WHERE record = '2026-11-22-adaptive' AND cell = 'course' AND server IN ('gradient', 'aimd', 'hill-climb') AND step
  NOT LIKE 'down%'
ORDER BY rowid

SELECT iif(record LIKE '%before', 'before', 'now') AS 'version', printf('%,d', sent) AS asked, printf('%,d', lost)
  AS 'not answered in time', printf('%.0f', goodput_per_s) AS 'in time per second, second half'
FROM steps
WHERE record IN ('2026-11-22-scaling', '2026-11-22-scaling-before') AND cell = '1x' AND step = '1x'
ORDER BY record DESC

SELECT load AS 'times the capacity', 100 * of_peak AS '% of the peak',
  CASE server WHEN 'none' THEN 'no protection' WHEN 'app' THEN '503 per request' WHEN 'accept' THEN 'not accepting'
    ELSE 'gate in the kernel' END AS mechanism
FROM goodput
WHERE record = '2026-11-28-stress' AND cell IN ('1x', '1.2x', '2x', '5x', '10x')
  AND server IN ('none', 'app', 'accept', 'ebpf-drop')
ORDER BY CASE server WHEN 'accept' THEN 1 WHEN 'ebpf-drop' THEN 2 WHEN 'app' THEN 3 ELSE 4 END, load

SELECT server AS mechanism, cell AS 'times the capacity', printf('%.1f', 100 * of_peak) AS '% of the peak',
  printf('%.1f', 100 * law) AS 'the law', printf('%.1f', p99_us / 1000) AS 'p99 of the admitted, ms'
FROM goodput
WHERE record = '2026-11-22-stress' AND cell IN ('1.2x', '2x', '5x', '10x') AND law IS NOT NULL
ORDER BY CAST(cell AS REAL), of_peak DESC

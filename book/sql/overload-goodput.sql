SELECT load AS 'times the capacity', 100 * of_peak AS '% of the peak', server AS mechanism
FROM goodput
WHERE record = '2026-11-22-stress' AND cell IN ('1x', '1.2x', '2x', '5x', '10x') AND server IN ('none', 'app',
  'accept', 'ebpf-drop', 'ebpf-reset')
ORDER BY 1

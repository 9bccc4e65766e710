//! Numbers buckets keep besides their items' weights, and the changes of weights.

/// Lengths of the straws of a straw bucket (`straw_calc_version` 0 or 1).
pub(crate) fn straw_lengths(weights: &[u32], version: u8) -> Vec<u32> {
    let n = weights.len();
    let mut straws = vec![0u32; n];
    // Positions by ascending weight; equal weights keep their order.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|i| weights.get(*i).copied().unwrap_or(0));
    let weight = |i: usize| order.get(i).and_then(|p| weights.get(*p)).copied().unwrap_or(0);
    let mut numleft = n;
    let (mut straw, mut wbelow, mut lastw) = (1.0f64, 0.0f64, 0.0f64);
    let mut i = 0;
    while i < n {
        let Some(slot) = order.get(i).and_then(|p| straws.get_mut(*p)) else { break };
        if weight(i) == 0 {
            *slot = 0;
            i += 1;
            if version >= 1 {
                numleft -= 1;
            }
            continue;
        }
        *slot = (straw * 65536.0) as u32;
        i += 1;
        if i == n {
            break;
        }
        if version == 0 && weight(i) == weight(i - 1) {
            continue;
        }
        wbelow += (f64::from(weight(i - 1)) - lastw) * numleft as f64;
        if version == 0 {
            // Everyone of the next weight leaves at once.
            let mut j = i;
            while j < n && weight(j) == weight(i) {
                numleft -= 1;
                j += 1;
            }
        } else {
            numleft -= 1;
        }
        let wnext = numleft as f64 * (f64::from(weight(i)) - f64::from(weight(i - 1)));
        let pbelow = wbelow / (wbelow + wnext);
        straw *= (1.0 / pbelow).powf(1.0 / numleft as f64);
        lastw = f64::from(weight(i - 1));
    }
    straws
}

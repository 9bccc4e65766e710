//! Statistics of few measurements: medians, spread, and confidence intervals of ratios.

/// Fewest repetitions for a claim about a ratio.
pub const REPETITIONS_MIN: usize = 3;

/// Values of one quantity, measured several times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Keeps the values that are numbers, in ascending order.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut v: Vec<f64> = values.into_iter().filter(|x| x.is_finite()).collect();
        v.sort_by(f64::total_cmp);
        Self(v)
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Value at a quantile from 0 to 1, linearly interpolated; `None` without values.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let at = q.clamp(0.0, 1.0) * last as f64;
        let (lo, hi) = (self.0.get(at.floor() as usize)?, self.0.get(at.ceil() as usize)?);
        Some(lo + (hi - lo) * at.fract())
    }

    /// Median.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// Least and greatest value.
    #[must_use]
    pub fn range(&self) -> Option<(f64, f64)> {
        Some((*self.0.first()?, *self.0.last()?))
    }

    /// Difference of the greatest and least value as a fraction of the median.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let ((lo, hi), m) = (self.range()?, self.median()?);
        (m != 0.0).then(|| (hi - lo) / m.abs())
    }

    /// Mean and variance of the logarithms; `None` with fewer than two values, or if one is not positive.
    fn logs(&self) -> Option<(f64, f64)> {
        if self.0.len() < 2 || self.0.iter().any(|x| *x <= 0.0) {
            return None;
        }
        let n = self.0.len() as f64;
        let mean = self.0.iter().map(|x| x.ln()).sum::<f64>() / n;
        let variance = self.0.iter().map(|x| (x.ln() - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Some((mean, variance))
    }
}

/// A ratio of two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Ratio of the medians.
    pub medians: f64,
    /// 95 % confidence interval of the ratio of the geometric means; `None` with too few values.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Whether the interval excludes 1, so that the two differ significantly.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.interval.is_some_and(|(lo, hi)| lo > 1.0 || hi < 1.0)
    }
}

/// The ratio of `a` to `b`, with Welch's interval on logarithms: times and rates vary by factors, and the two systems
/// need not vary alike.
#[must_use]
pub fn ratio(a: &Sample, b: &Sample) -> Option<Ratio> {
    let (x, y) = (a.median()?, b.median()?);
    if y == 0.0 {
        return None;
    }
    let interval = a.logs().zip(b.logs()).map(|((ma, va), (mb, vb))| {
        let (sa, sb) = (va / a.count() as f64, vb / b.count() as f64);
        let degrees = if sa + sb == 0.0 {
            (a.count() + b.count() - 2) as f64
        } else {
            (sa + sb).powi(2) / (sa.powi(2) / (a.count() - 1) as f64 + sb.powi(2) / (b.count() - 1) as f64)
        };
        let half = student(degrees) * (sa + sb).sqrt();
        ((ma - mb - half).exp(), (ma - mb + half).exp())
    });
    Some(Ratio { medians: x / y, interval })
}

/// Student's t for a two-sided 95 % interval.
fn student(degrees: f64) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let at = |d: usize| TABLE.get(d - 1).copied();
    let below = degrees.floor().max(1.0);
    match (at(below as usize), at(below as usize + 1)) {
        (Some(a), Some(b)) => a + (b - a) * (degrees.max(1.0) - below),
        // Beyond the table, the difference to the normal distribution falls as one over the degrees of freedom.
        _ => 1.960 + 2.46 / degrees,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let s = Sample::new([3.0, 1.0, 2.0, f64::NAN]);
        assert_eq!((s.count(), s.median(), s.range()), (3, Some(2.0), Some((1.0, 3.0))));
        assert_eq!(s.spread(), Some(1.0));
        assert_eq!(Sample::new([1.0, 2.0]).median(), Some(1.5));
        assert_eq!(Sample::new([]).median(), None);
    }

    #[test]
    fn intervals_hold_the_true_ratio_as_often_as_they_say() {
        // Two systems whose figures vary by some percent: the interval must contain the true ratio of 2 in 95 of 100
        // cases.
        let mut rng = base::rng::Rng::new(1);
        let mut normal = move || (0..12).map(|_| crate::load::pattern::unit(&mut rng)).sum::<f64>() - 6.0;
        let (mut inside, runs) = (0, 4000);
        for _ in 0..runs {
            let a = Sample::new((0..4).map(|_| 20.0 * (0.05 * normal()).exp()));
            let b = Sample::new((0..5).map(|_| 10.0 * (0.15 * normal()).exp()));
            let (lo, hi) = ratio(&a, &b).unwrap().interval.unwrap();
            inside += usize::from(lo <= 2.0 && 2.0 <= hi);
        }
        let share = inside as f64 / f64::from(runs);
        assert!((0.93..0.975).contains(&share), "{share}");
    }

    #[test]
    fn a_ratio_is_sure_or_not() {
        let r = ratio(&Sample::new([10.0, 10.5, 9.8]), &Sample::new([5.0, 5.1, 4.9])).unwrap();
        assert!((r.medians - 2.0).abs() < 1e-9 && r.is_sure(), "{r:?}");
        let r = ratio(&Sample::new([10.0, 14.0, 8.0]), &Sample::new([9.0, 12.0, 10.0])).unwrap();
        assert!(!r.is_sure(), "{r:?}");
        assert_eq!(ratio(&Sample::new([1.0]), &Sample::new([2.0])).unwrap().interval, None);
        assert_eq!(ratio(&Sample::new([1.0]), &Sample::new([0.0])), None);
        assert!((student(1.0) - 12.706).abs() < 1e-9 && (student(2.5) - 3.7425).abs() < 1e-3);
        assert!((student(29.5) - 2.0435).abs() < 1e-3 && (student(1e6) - 1.96).abs() < 1e-3);
    }
}

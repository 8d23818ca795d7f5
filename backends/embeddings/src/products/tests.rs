use super::*;

#[test]
fn a_linear_layer_is_weights_times_input_and_bias() {
    let linear = Linear::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![10.0, 20.0]);
    let mut to = Vec::new();
    linear.apply(&Rows::new(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 2), &mut to);
    let expected = [11.0, 24.0, 16.0, 35.0];
    // Half a step of the smallest scale for each input.
    let error = 3.0 * 6.0 / 65_534.0;
    let off = |(a, b): (&f32, f32)| (a - b).abs();
    assert!(to.iter().zip(expected).all(|pair| off(pair) < error), "{to:?}");
    Linear::new(&[0.0; 3], vec![7.0]).apply(&Rows::new(&[1.0, 2.0, 3.0], 1), &mut to);
    assert_eq!(to, [7.0]);
}

/// Numbers whose size differs from group to group; those of every fourth group are zeros.
fn numbers(count: usize, step: usize) -> Vec<f32> {
    let number = |n: usize| {
        let size = 1.0 + (n / GROUP % 4) as f32 * 30.0;
        let is_zero = n / GROUP % 4 == 3;
        if is_zero { 0.0 } else { size * ((n * step % 17) as f32 / 4.0 - 2.0) }
    };
    (0..count).map(number).collect()
}

fn largest(x: &[f32]) -> f64 {
    f64::from(x.iter().fold(0.0_f32, |most, x| most.max(x.abs())))
}

/// The product, and how much a quantised one may differ: half a step of 14 bits of a row's numbers, and of 12 of weights.
fn product(weight: &[f32], x: &[f32]) -> (f64, f64) {
    let step = largest(weight) / 4096.0;
    let (mut product, mut error) = (0.0, 1e-4);
    for (weight, x) in weight.chunks(GROUP).zip(x.chunks(GROUP)) {
        let largest = largest(x);
        for (weight, x) in weight.iter().zip(x) {
            product += f64::from(*weight) * f64::from(*x);
            error += (f64::from(weight.abs()) + step) * largest / 16383.0 / 2.0;
            error += f64::from(x.abs()) * step / 2.0;
        }
    }
    (product, error)
}

#[test]
fn every_instruction_set_makes_the_same_products_of_any_number_of_rows() {
    for (inner, columns) in [(24, 6), (19, 37), (3, 1), (128, 16), (300, 20), (640, 17)] {
        let (weight, bias) = (numbers(inner * columns, 5), numbers(columns, 3));
        let linear = Linear::new(&weight, bias.clone());
        let count = ROWS + 7;
        let mut x = numbers(inner * count, 7);
        for x in &mut x[inner..2 * inner] {
            *x *= 1e4;
        }
        let mut many = Vec::new();
        linear.apply(&Rows::new(&x, count), &mut many);
        for (x, many) in x.chunks(inner).zip(many.chunks(columns)) {
            for ((weight, bias), got) in weight.chunks(inner).zip(&bias).zip(many) {
                let (expected, error) = product(weight, x);
                let expected = expected + f64::from(*bias);
                // The rest of the error is the rounding of floats.
                let error = error + expected.abs() * 1e-6;
                let off = (f64::from(*got) - expected).abs();
                assert!(off < error, "{got} is not {expected} within {error}");
            }
        }
        for set in InstructionSet::usable() {
            for rows in (1..=2 * set.rows()).chain([ROWS, count]) {
                let mut some = Vec::new();
                linear.apply(&Rows::by(set, &x[..inner * rows], rows), &mut some);
                assert_eq!(many[..columns * rows], some, "{rows} rows, {set:?}");
            }
        }
    }
}

#[test]
fn the_largest_sums_do_not_overflow() {
    // Numbers of one sign and size have the largest sum.
    for inner in (1..=GROUP).chain([3 * GROUP]) {
        for (weight, x) in [(1.0, 1.0), (-3e36, 0.1), (1e-30, -1e30), (0.3, 3e-30)] {
            let (weight, x) = (vec![weight; inner], vec![x; inner]);
            let linear = Linear::new(&weight, vec![0.0]);
            let exact = f64::from(weight[0]) * f64::from(x[0]) * inner as f64;
            for set in InstructionSet::usable() {
                let mut to = Vec::new();
                linear.apply(&Rows::by(set, &x, 1), &mut to);
                let off = f64::from(to[0]) / exact - 1.0;
                assert!(off.abs() < 1e-3, "{to:?} is not {exact}");
            }
        }
    }
}

#[test]
fn weights_that_are_rounded_up_do_not_overflow() {
    let mut weight = [1.0_f32; GROUP];
    for last in (1..2000).map(|step| 1.0 + step as f32 / 1000.0) {
        weight[GROUP - 1] = last;
        let linear = Linear::new(&weight, vec![0.0]);
        let exact = (GROUP - 1) as f32 + last;
        for set in InstructionSet::usable() {
            let mut to = Vec::new();
            linear.apply(&Rows::by(set, &[1.0; GROUP], 1), &mut to);
            assert!((to[0] / exact - 1.0).abs() < 1e-3, "{to:?} is not {exact}");
        }
    }
}

/// Weights of one size lose nothing, so the error is that of the row: a step of 14 bits, of its own group.
#[test]
fn a_row_is_off_by_steps_of_14_bits_of_each_group_s_largest() {
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let inner = 6 * GROUP;
    // The large numbers of one group meet weights of 0.
    let is_large = |n: usize| n / GROUP == 2;
    let weight = (0..inner).map(|n| if is_large(n) { 0.0 } else { [1.0, -1.0][n * 5 % 3 % 2] });
    let weight: Vec<f32> = weight.collect();
    let linear = Linear::new(&weight, vec![0.0]);
    let rows = 200;
    let x = (0..rows * inner).map(|n| random() * if is_large(n % inner) { 1e4 } else { 1.0 });
    let x: Vec<f32> = x.collect();
    let mut to = Vec::new();
    linear.apply(&Rows::new(&x, rows), &mut to);
    let off = x.chunks(inner).zip(&to).map(|(x, got)| {
        let products = x.iter().zip(&weight).map(|(x, w)| f64::from(*x) * f64::from(*w));
        (f64::from(*got) - products.sum::<f64>()).powi(2)
    });
    let off = (off.sum::<f64>() / rows as f64).sqrt();
    // Rounding is off by a step over the root of 12.
    let expected = ((inner - GROUP) as f64 / 12.0).sqrt() / 16383.0;
    assert!((0.6..1.4).contains(&(off / expected)), "{off}, not {expected}");
}

#[test]
fn weights_and_rows_that_are_almost_zero_count_as_zero() {
    for (weight, x) in [(1e-36, 1.0), (1e-44, 1.0), (0.0, 1.0), (1.0, 1e-44), (1.0, 0.0)] {
        let linear = Linear::new(&[weight; GROUP], vec![0.0]);
        let mut to = Vec::new();
        linear.apply(&Rows::new(&[x; GROUP], 1), &mut to);
        assert_eq!(to, [0.0], "{weight} times {x}");
    }
}

#[test]
fn a_row_with_nan_or_infinity_gives_nan() {
    let linear = Linear::new(&[1.0; 6], vec![0.0; 2]);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut to = Vec::new();
        linear.apply(&Rows::new(&[1.0, bad, 3.0, 1.0, 2.0, 3.0], 2), &mut to);
        assert!(to[..2].iter().all(|x| x.is_nan()), "{to:?}");
        assert!(to[2..].iter().all(|x| (x - 6.0).abs() < 0.01), "{to:?}");
    }
}

#[test]
#[should_panic(expected = "rows of another length")]
fn rows_of_another_length_are_refused() {
    Linear::new(&[1.0; 6], vec![0.0; 2]).apply(&Rows::new(&[1.0; 8], 1), &mut Vec::new());
}

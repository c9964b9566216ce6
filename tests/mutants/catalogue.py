"""Ways to break the privacy of this package, each as a patch of one place of its source.

Each was made by somebody once: in a paper, in published code, in another library, or by us.  A
mutant names the test that finds it; one that survives its test fails the build.
"""

from dataclasses import dataclass

FIT = "tests/e2e/test_privacy_through_fit.py::"
CONTRACT = "tests/contracts/test_methods.py::"
AUDIT = "tests/audits/test_steps.py::test_audit_step_is_not_above_the_claim"
NOISE = FIT + "test_every_step_carries_fresh_noise_of_the_claimed_scale"
POISSON = FIT + "test_batches_are_poisson_samples[dpsgd]"
THRESHOLD = "tests/model_selection/test_threshold_classifier.py::"
COUNTS = "tests/model_selection/test_score_counts.py::"
SEARCH = "tests/model_selection/test_randomized_search.py::"
USER_CODE = "tests/e2e/test_user_code.py::"
ROUNDING = "tests/engine/per_sample/test_records_rounding.py::"
VIEWS = "tests/test_augmentations.py::"
LEDGER = "tests/budget/test_privacy_ledger.py::"
JOURNAL = "tests/budget/test_journal.py::"
SPARSE = "tests/engine/test_sparse_rows.py::"
PER_SAMPLE = "tests/engine/per_sample/"
PROOF = PER_SAMPLE + "proof/"
SHARED = "tests/training/test_processes.py::"
HOOKS = "tests/engine/test_record_hooks.py::"
RELEASES = "tests/e2e/test_releases.py::"
PERSONS = "tests/e2e/test_persons.py::"
INTERFERENCE = "tests/e2e/test_noninterference.py::"
AGAIN = INTERFERENCE + "test_no_two_fits_and_no_two_places_draw_the_same_noise"
BOUND = FIT + "test_no_record_moves_the_weights_beyond_its_bound"


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Parameters
    ----------
    name : str
    says : str
        What is wrong, in a line.
    file : str
        Source file, relative to the package.
    old, new : str
        What is replaced, which occurs once, and by what.
    killed_by : str
        The test that must fail.
    measure : tuple
        How the damage is measured: ("step", method, settings), ("run", method), or () where it
        shows in neither.
    """

    name: str
    says: str
    file: str
    old: str
    new: str
    killed_by: str
    measure: tuple = ()


MUTANTS = (
    # noise
    Mutant(
        "no noise",
        "the gradient is released as it is",
        "engine/step.py",
        "generator.fill_(gradient, clip.bound, mechanism.noise_multiplier / size)",
        "gradient.zero_()",
        NOISE + "[dpsgd-standard]",
        ("step", "dpsgd"),
    ),
    Mutant(
        "noise of C",
        "DPSGD-F adds noise for the bound C, but clips group k to C_k, up to (1 + K) C",
        "methods/dpsgd_f.py",
        "bounds.index_select(0, sample.group), sample.norm), bounds.max())",
        "bounds.index_select(0, sample.group), sample.norm), 0 * bounds.max() "
        '+ self.number("max_grad_norm", 1.0))',
        AUDIT + "[dpsgd_f]",
        ("step", "dpsgd_f"),
    ),
    Mutant(
        "noise of present groups",
        "DPSGD-F takes the largest bound of the groups present, so the noise tells who is",
        "methods/dpsgd_f.py",
        "sample.norm), bounds.max())",
        "sample.norm), bounds[sample.group.unique()].max() if len(sample.group) else bounds.min())",
        CONTRACT + "test_contract[2-dpsgd_f]",
        ("step", "dpsgd_f"),
    ),
    Mutant(
        "noise of the mean factor",
        "naive adds noise for the mean of the groups' factors, not for the largest",
        "methods/naive.py",
        "return Clip(weight, bound * factor.max())",
        "return Clip(weight, bound * factor.mean())",
        CONTRACT + "test_contract[2-naive]",
        ("step", "naive"),
    ),
    Mutant(
        "noise before clipping",
        "the noisy gradient is clipped, and its noise with it",
        "engine/step.py",
        "    clipped.add_weighted(weight * model.number(shrink), gradient)\n",
        "    clipped.add_weighted(weight * model.number(shrink), gradient)\n"
        "    most = clip.bound / size / gradient.norm().clamp(min=1e-30)\n"
        "    gradient.mul_(most.clamp(max=1.0))\n",
        NOISE + "[dpsgd-standard]",
    ),
    Mutant(
        "the same noise each step",
        "the generator of the noise is seeded anew for each step",
        "engine/noise.py",
        '        if self.kind == "standard":\n            return',
        "        self._gaussians = Gaussians(Keystream(bytes(8)))\n"
        '        if self.kind == "standard":\n            return',
        CONTRACT + "test_two_steps_draw_fresh_noise[dpsgd]",
    ),
    Mutant(
        "the same noise each fit",
        "the entropy of an unseeded fit is a constant",
        "engine/streams.py",
        "return cls((secrets.randbits(256),), (secrets.randbits(256),))",
        "return cls((7,), (secrets.randbits(256),))",
        "tests/training/test_run.py::test_seeds_repeat_a_fit_and_none_never_does",
    ),
    Mutant(
        "secure noise halved",
        "the sum of four Gaussians is divided by four, not by two",
        "engine/noise.py",
        "noise_multiplier / 2).sum(0))",
        "noise_multiplier / 4).sum(0))",
        NOISE + "[dpsgd-gaussian_sum]",
        ("step", "dpsgd", {"noise_sampler": "gaussian_sum"}),
    ),
    Mutant(
        "variance for standard deviation",
        "the multiplier is used as a variance",
        "engine/step.py",
        "mechanism.noise_multiplier / size)",
        "mechanism.noise_multiplier**0.5 / size)",
        NOISE + "[dpsgd-standard]",
        ("step", "dpsgd", {"noise_multiplier": 4.0}),
    ),
    Mutant(
        "count without noise",
        "the counts are released as they are",
        "engine/step.py",
        "            total += generator.fill_(noise, query.sensitivity, query.noise_multiplier)\n",
        "            generator.fill_(noise, query.sensitivity, query.noise_multiplier)\n",
        CONTRACT + "test_count_noise_has_the_claimed_scale[naive]",
        ("step", "naive"),
    ),
    Mutant(
        "unclamped counts",
        "DPSGD-F uses negative noisy counts as they are, and bounds become negative",
        "methods/dpsgd_f.py",
        "counts.relu().view(2, -1)",
        "counts.view(2, -1)",
        CONTRACT + "test_contract[2-dpsgd_f]",
        ("step", "dpsgd_f"),
    ),
    Mutant(
        "realised batch size",
        "sums are divided by the number of records drawn, which scales the noise",
        "engine/step.py",
        "    size = mechanism.expected_batch_size\n",
        "    size = max(len(batch), 1)\n",
        NOISE + "[dpsgd-standard]",
        ("step", "dpsgd"),
    ),
    Mutant(
        "warm-up count without noise",
        "the count by which the scale of the gradients is found is exact",
        "engine/warmup.py",
        "_rows_above, 1.0, self.noise_multiplier)",
        "_rows_above, 1.0, 0.0)",
        "tests/engine/test_warmup.py::"
        "test_scale_search_counts_with_fresh_noise_of_the_claimed_scale[0]",
    ),
    Mutant(
        "exact group counts",
        "the sizes of the groups are used as they are, and booked as noisy",
        "training/run.py",
        "noise = 0.0 if self.processes.rank else release.joint_noise_multiplier",
        "noise = 0.0",
        RELEASES + "test_group_counts_have_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "unclamped counts of a mean",
        "DPSGD-F with ratio='group_mean' uses negative noisy counts as they are",
        "methods/dpsgd_f.py",
        "counts.relu().view(2, -1)",
        "(counts.relu() if self.ratio == 'batch' else counts).view(2, -1)",
        CONTRACT + "test_contract_of_other_settings[dpsgd_f-settings0]",
    ),
    Mutant(
        "time as entropy",
        "an unseeded fit draws its noise from the clock, which can be guessed",
        "engine/streams.py",
        "return cls((secrets.randbits(256),), (secrets.randbits(256),))",
        "import time\n\n        return cls((time.time_ns(),), (secrets.randbits(256),))",
        "tests/engine/test_streams.py::test_fresh_streams_take_entropy_of_the_operating_system",
    ),
    # clipping
    Mutant(
        "no clipping",
        "weights do not depend on norms",
        "methods/_clipping.py",
        "    return bound / torch.maximum(norm, bound)",
        "    return torch.ones_like(norm)",
        BOUND + "[dpsgd]",
        ("step", "dpsgd"),
    ),
    Mutant(
        "clipping by layers",
        "norms are those of the longest layer (the engine notices, and takes a slower way)",
        "engine/per_sample/closed_form.py",
        "torch.linalg.vector_norm(torch.stack(factors).mul_(rows), dim=0)",
        "torch.stack(factors).mul_(rows).amax(0)",
        PER_SAMPLE + "test_records.py::test_norm_and_weighted_sum_equal_a_loop",
    ),
    Mutant(
        "bias left out of the norm",
        "norms leave out the bias (the engine notices, and takes a slower way)",
        "engine/per_sample/closed_form.py",
        "return length.hypot_(self._one) if has_bias else length.add_(self._least)",
        "return length",
        PER_SAMPLE + "test_records.py::test_norm_and_weighted_sum_equal_a_loop",
    ),
    Mutant(
        "clipping the mean",
        "the mean of the batch is clipped, not each record",
        "methods/_clipping.py",
        "return Clip(clip_to(bound, sample.norm), bound)",
        "mean = sample.norm.mean() if len(sample.norm) else bound\n"
        "        return Clip(clip_to(bound, mean).expand_as(sample.norm), bound)",
        BOUND + "[dpsgd]",
        ("step", "dpsgd"),
    ),
    Mutant(
        "NaN gets through",
        "a record without a finite gradient makes the sums NaN, and is noticed",
        "engine/step.py",
        '    if norm.device.type == "cpu" and math.isfinite((norm.sum()',
        '    if norm.device.type == "cpu" or math.isfinite((norm.sum()',
        CONTRACT + "test_a_record_without_a_finite_gradient_contributes_nothing[dpsgd-nan]",
    ),
    Mutant(
        "weights above 1",
        "weights of records or classes multiply clipped gradients, beyond the bound",
        "engine/batch.py",
        "self.examples.mean(self.weight.clamp(0.0, 1.0))",
        "self.examples.mean(self.weight)",
        CONTRACT + "test_a_record_moves_the_sum_by_at_most_the_bound_whatever_its_weight[dpsgd]",
    ),
    Mutant(
        "parts of a number counted apart",
        "a place of a sparse row that is stored twice counts with two squares",
        "inputs/rows.py",
        "if not csr.has_canonical_format:",
        "if False:",
        SPARSE + "test_sparse_numbers_that_are_stored_in_parts_are_one",
    ),
    Mutant(
        "squares of a person's rows",
        "the norm of a person's sparse rows is that of rows which do not meet",
        "engine/sparse_rows.py",
        "total.index_add_(0, of, sums.square_())",
        "total.index_add_(0, of.index_select(0, at), self._times(of_output).square_())",
        SPARSE + "test_persons_on_sparse_rows_are_those_on_dense_ones[logistic-4]",
    ),
    # what is kept between steps
    Mutant(
        "raw counts in Z",
        "global_adapt moves its threshold by the count without noise",
        "engine/step.py",
        'method.update(state, {**clipped.release, "gradient": gradient})',
        "method.update(state, {**clipped.release, **noisy_sums("
        "replace(mechanism, noise_multiplier=0.0)"
        '.queries, clipped.sample, None, state, generator, early=False), "gradient": gradient})',
        AUDIT + "[global_adapt]",
        ("step", "global_adapt"),
    ),
    Mutant(
        "raw gradient ahead",
        "dp_sat goes uphill along the last gradient without noise",
        "engine/step.py",
        "    state = method.update(state,",
        "    plain = model.flat()\n"
        "    clipped.add_weighted(weight * model.number(shrink), plain)\n"
        "    if method.name == 'dp_sat':\n"
        "        state = method.update(state, {'gradient': plain})\n"
        "        return Step(gradient, state, max_bound_ratio, clip.bound)\n"
        "    state = method.update(state,",
        AUDIT + "[dp_sat]",
        ("step", "dp_sat"),
    ),
    Mutant(
        "batch statistics in a weight",
        "global scales each record by the largest norm of the batch",
        "methods/global_.py",
        "return Clip(torch.where(sample.norm <= z, scale, 0.0), sample",
        "scale = bound / sample.norm.max().clamp(min=z) if len(sample.norm) else scale\n"
        "        return Clip(torch.where(sample.norm <= z, scale, 0.0), sample",
        CONTRACT + "test_contract[2-global]",
    ),
    Mutant(
        "bound from the batch",
        "the clipping bound is a quantile of the norms of the last batch of the warm-up",
        "engine/warmup.py",
        "        return updated_scale(",
        "        if len(sample.norm):\n"
        "            return sample.norm.quantile(0.9).clamp(Z_MIN, Z_MAX)\n"
        "        return updated_scale(",
        "tests/engine/test_warmup.py::"
        "test_scale_search_counts_with_fresh_noise_of_the_claimed_scale[1]",
    ),
    # sampling
    Mutant(
        "shuffled batches",
        "each epoch goes through a permutation, accounted as Poisson sampling",
        "engine/sampling.py",
        "        trials = self._successes(self.n_samples * n_steps)\n",
        "        size = max(1, round(self.rate * self.n_samples))\n"
        "        epochs = -(-n_steps * size // self.n_samples)\n"
        "        order = [self.generator.random(self.n_samples).argsort() for _ in range(epochs)]\n"
        "        rows = torch.from_numpy(np.concatenate(order))[: n_steps * size]\n"
        "        return [r.sort().values for r in rows.split(size)]\n"
        "        trials = self._successes(self.n_samples * n_steps)\n",
        POISSON,
    ),
    Mutant(
        "batches of fixed size",
        "each batch has the same number of records, accounted as Poisson sampling",
        "engine/sampling.py",
        "        trials = self._successes(self.n_samples * n_steps)\n",
        "        size = max(1, round(self.rate * self.n_samples))\n"
        "        draws = [self.generator.random(self.n_samples) for _ in range(n_steps)]\n"
        "        return [torch.from_numpy(np.sort(d.argsort()[:size])) for d in draws]\n"
        "        trials = self._successes(self.n_samples * n_steps)\n",
        POISSON,
    ),
    Mutant(
        "one sample for all epochs",
        "the batches of the first epoch are used again",
        "training/batches.py",
        "            indices = self.sampler.draw(min(n_left, steps_at_once))\n",
        "            if not hasattr(self, 'first'):\n"
        "                self.first = self.sampler.draw(min(n_left, steps_at_once))\n"
        "            indices = self.first[:n_left]\n",
        POISSON,
    ),
    Mutant(
        "empty batches skipped",
        "a step without records is not taken, so its absence tells that nobody was drawn",
        "training/batches.py",
        "            n_left -= len(indices)\n",
        "            n_left -= len(indices)\n"
        "            indices = [i for i in indices if len(i)]\n",
        "tests/training/test_batches.py::test_poisson_batches_count_an_empty_batch",
    ),
    Mutant(
        "a larger rate",
        "records are drawn twice as often as is accounted",
        "training/net.py",
        "sampler = PoissonSampler(rates, len(groups)",
        "sampler = PoissonSampler(2 * rates, len(groups)",
        POISSON,
    ),
    # persons with several records
    Mutant(
        "persons clipped record by record",
        "a person is drawn as a whole, but each of her records is clipped by itself",
        "training/batches.py",
        "return replace(_fetched(self.rows, records), examples=examples)",
        "return _fetched(self.rows, records)",
        PERSONS + "test_batches_are_poisson_samples_of_persons",
    ),
    Mutant(
        "norms that others change",
        "one person with many records changes what all norms allow for rounding",
        "engine/per_sample/samplers.py",
        "rounding(max(*self.a.shape[1:], self.b.shape[-1]), self.b)",
        "rounding(max(examples.largest, self.a.shape[-1]), self.b)",
        PER_SAMPLE + "test_records.py::"
        "test_gradients_of_persons_do_not_depend_on_sizes_of_others[linear]",
    ),
    Mutant(
        "records counted as persons",
        "delta and rate follow from the number of records, of which there are more",
        "inputs/table.py",
        "return len(self.y) if self.person is None else int(self.person.max()) + 1",
        "return len(self.y)",
        PERSONS + "test_the_report_of_a_fit_counts_samples_and_protects_persons",
    ),
    Mutant(
        "thinning by others",
        "how many records of a person stay depends on how many others have",
        "inputs/persons.py",
        "thinned_person[order[rank >= max_records]] = -1",
        "thinned_person[order[rank >= max(max_records, np.median(size))]] = -1",
        "tests/inputs/test_persons.py::test_thinned_leaves_at_most_so_many_records_of_each_person",
    ),
    Mutant(
        "early counts of all records",
        "a person with several records counts several times in what is released first",
        "engine/step.py",
        "share /= examples.spread(examples.sum(share))",
        "pass",
        "tests/contracts/test_persons.py::"
        "test_one_person_moves_each_release_by_at_most_its_sensitivity[fairlens_dp]",
    ),
    Mutant(
        "score counts of all records",
        "a person with several records counts several times in the histogram of scores",
        "model_selection/_score_counts.py",
        "histograms = np.bincount(cells, share, minlength",
        "histograms = np.bincount(cells, minlength",
        PERSONS + "test_one_person_moves_the_counts_of_scores_by_one_record",
    ),
    Mutant(
        "trials scored by records",
        "a person with several records counts several times in the score of a trial",
        "model_selection/_randomized_search.py",
        "_persons.share_of(person[scored])",
        "np.ones(len(scored))",
        PERSONS + "test_a_private_search_holds_out_whole_persons_each_of_whom_counts_once",
    ),
    # accounting
    Mutant(
        "count composed apart",
        "count and gradient are accounted as if each had its own sample",
        "privacy/releases.py",
        "    for release in all_releases(releases):\n"
        "        noise = release.joint_noise_multiplier\n",
        "    apart = ((r, s) for r in all_releases(releases) for s in r.noise_multipliers)\n"
        "    for release, noise in apart:\n",
        "tests/privacy/test_accounting_golden.py::"
        "test_compute_epsilon_is_that_of_an_independent_accountant",
        ("run", "global_adapt"),
    ),
    Mutant(
        "count left out",
        "the count is released and not accounted",
        "privacy/releases.py",
        "    ratio: float = math.fsum((s / least) ** -2 for s in noise_multipliers) ** -0.5",
        "    ratio = noise_multipliers[0] / least",
        "tests/privacy/test_accounting_golden.py::"
        "test_compute_epsilon_is_that_of_an_independent_accountant",
        ("run", "global_adapt"),
    ),
    Mutant(
        "mean rate for the largest",
        "dp_is_sgd accounts for the mean sampling rate, not for that of the smallest group",
        "engine/mechanism.py",
        "default=float(self.rates.max()))",
        "default=float(self.rates.mean()))",
        FIT + "test_groups_are_sampled_at_their_own_rates",
        ("run", "dp_is_sgd"),
    ),
    Mutant(
        "cheapest stratum for the worst",
        "a step is accounted for as that of its cheapest stratum, not as the worst of all",
        "privacy/mixture.py",
        "    removed, added = np.max(deltas, axis=0)",
        "    removed, added = np.min(deltas, axis=0)",
        "tests/privacy/test_accounting_strata.py::"
        "test_delta_curve_covers_a_stratum_that_an_earlier_release_chooses",
    ),
    Mutant(
        "largest rate for all strata",
        "groups that move among rates are sampled at the largest, with the bound of their own",
        "training/batches.py",
        " < self.acceptance_rates(index.numpy())",
        " < 1.0",
        FIT + "test_rates_follow_what_was_released",
    ),
    Mutant(
        "factor of a stratum ignored",
        "the check of the bound does not see that groups sampled more often have a lower one",
        "engine/step.py",
        "            lengths = lengths / factors.to(lengths).index_select(0, clipped.sample.group)",
        "            pass",
        FIT + "test_a_method_keeps_the_bound_of_each_stratum",
    ),
    Mutant(
        "warm-up not charged",
        "the steps that look for the scale of the gradients are not in the ledger",
        "training/loop.py",
        '        self._account("gradient scale (warm-up)")\n',
        "",
        "tests/training/test_warm_start.py::"
        "test_warm_start_spends_epsilon_in_each_fit_and_searches_the_scale_once",
    ),
    Mutant(
        "group counts not charged",
        "the sizes of the groups are released once and not in the ledger",
        "training/run.py",
        "            self.releases.append(release)\n",
        "",
        "tests/methods/test_dp_is_sgd.py::"
        "test_group_counts_with_noise_are_released_and_part_of_epsilon",
    ),
    Mutant(
        "first query alone",
        "of the statistics of a step the first is accounted for, and no other",
        "engine/mechanism.py",
        "*(q.noise_multiplier for q in self.queries))",
        "*(q.noise_multiplier for q in self.queries[:1]))",
        "tests/engine/test_mechanism.py::"
        "test_mechanism_release_has_the_noise_of_the_gradient_and_of_each_query",
    ),
    Mutant(
        "steps booked late",
        "a step is booked once it is over, so that an interrupt leaves it out",
        "training/loop.py",
        "            self._train_step(index)\n",
        "            account, self._account = self._account, lambda what: None\n"
        "            self._train_step(index)\n"
        "            self._account = account\n"
        "            self._account(self._step_name)\n",
        "tests/robustness/test_endurance.py::test_loop_accounts_for_a_step_before_it_is_taken[1.0]",
    ),
    Mutant(
        "a release repeated",
        "memory that runs out in the update makes a second release, booked as one",
        "training/loop.py",
        "self._update(self._in_memory(len(index) * self.n_views, lambda: self.release(index)))",
        "self._in_memory(len(index) * self.n_views, lambda: self._update(self.release(index)))",
        "tests/robustness/test_endurance.py::"
        "test_an_update_that_runs_out_of_memory_repeats_no_release",
    ),
    Mutant(
        "fits before forgotten",
        "warm_start reports the last fit alone",
        "training/run.py",
        "releases = [] if previous is None else list(previous.privacy.releases)",
        "releases = []",
        "tests/training/test_warm_start.py::"
        "test_warm_start_continues_the_weights_and_composes_the_releases",
    ),
    Mutant(
        "best of K as one fit",
        "a private search reports the cost of one trial",
        "privacy/renyi.py",
        "    return np.minimum.accumulate(total[::-1])[::-1]",
        "    return curve",
        "tests/privacy/test_renyi.py::test_selection_curve_has_the_golden_epsilon",
    ),
    Mutant(
        "a selection drops the fits",
        "a ledger with a private search forgets the fits beside it",
        "budget/journal.py",
        "return curve_epsilon(selections + rdp_curve(releases), delta)",
        "return curve_epsilon(selections, delta)",
        "tests/budget/test_charging.py::test_charged_adds_the_curve_of_a_private_selection_to_the_fits",
    ),
    Mutant(
        "trained on held-out records",
        "a private search trains on records that score the trials",
        "model_selection/_randomized_search.py",
        "np.flatnonzero(~is_scored)",
        "np.arange(np.sum(~is_scored))",
        SEARCH + "test_fit_scores_no_record_that_it_trains_on",
    ),
    # leaks
    Mutant(
        "a pickle with the seed",
        "the pickle of a fitted estimator holds its random_state",
        "release/_facts.py",
        'SCRUBBED = {"random_state": None, ',
        "SCRUBBED = {",
        "tests/estimators/test_base.py::test_pickle_holds_weights_and_public_facts_only",
    ),
    Mutant(
        "categories of the rows",
        "polars' Categorical, which lists the values of the rows, declares categories",
        "preprocessing/_public.py",
        'startswith(("Categorical", "dictionary"))]:',
        'startswith(("Text", "dictionary"))]:',
        "tests/preprocessing/test_public.py::test_categories_that_are_those_of_the_rows_are_refused",
    ),
    Mutant(
        "a release with rows as groups",
        "a release is verified by the names of its facts, whatever their values",
        "release/_closed_list.py",
        "if not _is_listed(name, test, estimator)]",
        "if test is None]",
        "tests/testing/test_verify_release.py::test_verify_release_finds_what_is_planted[parameter-group_col-2]",
    ),
    Mutant(
        "a release with a note",
        "a release is verified without writing it again",
        "testing/_verify_release.py",
        "if sha256(written).hexdigest() != content.sha256:",
        "if len(written) > content.n_bytes:",
        "tests/testing/test_verify_release.py::test_verify_release_refuses_bytes_beside_the_facts",
    ),
    Mutant(
        "seeds that ignore the data",
        "two seeded fits on neighbouring data share their noise, which cancels",
        "training/run.py",
        "    return Streams.seeded(int(state), digest=mixed)",
        "    return Streams.seeded(int(state), digest=bytes(32))",
        FIT + "test_equal_seeds_share_no_noise_on_neighbouring_data",
    ),
    Mutant(
        "32 bits of entropy",
        "streams are told apart by 32 bits",
        "engine/streams.py",
        "return Keystream.seeded(*use, self.entropy)",
        "return Keystream.seeded(*use, tuple(e % 2**32 for e in self.entropy))",
        "tests/engine/test_streams.py::test_streams_differ_where_seed_or_digest_do",
    ),
    Mutant(
        "seeds that ignore the labels",
        "the noise of a seeded fit does not depend on the labels, and cancels",
        "training/run.py",
        "digest(*rows, table.y, table.groups.code",
        "digest(*rows, table.groups.code",
        "tests/training/test_run.py::test_seeded_streams_differ_where_records_do",
    ),
    Mutant(
        "seeds that ignore the weights",
        "the noise of a seeded fit does not depend on the sample weights, and cancels",
        "training/run.py",
        "for column in (table.weight, table.person)",
        "for column in (table.person,)",
        "tests/e2e/test_sample_weight.py::test_fits_with_other_weights_share_no_noise",
    ),
    Mutant(
        "searches that share secrets",
        "seeded searches of neighbouring data have the same trials, split and noise",
        "model_selection/_randomized_search.py",
        "_trials.generator_of(self, selection.pool, parts)",
        "np.random.default_rng(self.random_state)",
        "tests/model_selection/test_randomized_search_secrets.py::test_random_state_gives_equal_secrets_only_if_all_is_equal",
    ),
    Mutant(
        "batch sizes logged",
        "the log tells how many records each batch drew",
        "engine/step.py",
        "        shift = mechanism.method.parameter_perturbation(state)\n",
        "        import logging\n"
        "\n"
        "        logging.getLogger('skdpfair').info('a batch of %d', len(batch))\n"
        "        shift = mechanism.method.parameter_perturbation(state)\n",
        "tests/training/test_train.py::test_train_logs_and_holds_nothing_of_the_batches",
    ),
    Mutant(
        "rounding taken for resolution",
        "at a small delta epsilon comes out of the rounding of a Fourier transform",
        "privacy/accounting.py",
        "return _ROUNDING + _STEP_ROUNDING * sum(run.steps for run in runs)",
        "return 0.0",
        "tests/privacy/test_calibration.py::test_calibrate_noise_at_a_small_delta[0.999999999-10000-pld]",
    ),
    Mutant(
        "earlier fits left out",
        "a ledger composes the new fits alone, without those that it composed before",
        "privacy/accounting.py",
        "return _compose(composed, [run",
        "return _compose(None, [run",
        "tests/privacy/test_accounting.py::"
        "test_compute_epsilon_of_growing_runs_is_that_of_their_sum",
    ),
    Mutant(
        "noise without tails",
        "a released table's noise ends where a float sampler would",
        "privacy/one_time_noise.py",
        "        while _exp_bernoulli(1, 1, below):\n",
        "        while quotient < 36 and _exp_bernoulli(1, 1, below):\n",
        "tests/privacy/test_one_time_noise.py::test_discrete_laplace_reaches_its_tails[1]",
    ),
    Mutant(
        "a table's noise from a known seed",
        "a released table draws its noise from a generator that anybody can start",
        "metrics/_group_tables.py",
        "Keystream.fresh()",
        "Keystream(bytes(32))",
        "tests/metrics/test_group_tables_release.py::"
        "test_release_group_table_draws_from_a_key_of_the_operating_system",
    ),
    Mutant(
        "a ledger without a lock",
        "two processes check the budget side by side, and both find room",
        "budget/journal.py",
        "            lock(handle)\n",
        "",
        JOURNAL + "test_journal_is_locked_from_the_check_to_the_entry",
    ),
    Mutant(
        "a last line forgotten",
        "a fit whose line in the ledger has no end is not counted",
        "budget/journal.py",
        'if content and not content.endswith(b"\\n"):',
        "if False:",
        JOURNAL + "test_journal_refuses_a_last_line_without_an_end",
    ),
    Mutant(
        "an edited ledger",
        "a line of a ledger that was edited or moved is taken as it is by those who read it anew",
        "budget/journal.py",
        'if self.sealed(text + b"}") + b"\\n" != line if seal else self.is_sealed:',
        "if False:",
        JOURNAL + "test_journal_total_is_lowered_by_no_line_edited_moved_or_repeated",
    ),
    Mutant(
        "a fit that ends twice",
        "a second end of a fit in a ledger replaces the releases of the first",
        "budget/journal.py",
        'if fit is None or fit["state"] != "planned":',
        "if fit is None:",
        JOURNAL + "test_journal_names_a_line_of_no_fit_in_a_file_without_seals[a second end]",
    ),
    Mutant(
        "a release of any epsilon",
        "a release file states an epsilon that its releases exceed",
        "release/_read_statement.py",
        '_check_same("epsilon", report.epsilon, compute_epsilon(entries, delta, accountant))',
        "pass",
        "tests/release/test_read_statement.py::"
        "test_check_report_refuses_contradictions[a smaller epsilon]",
    ),
    Mutant(
        "an emptied ledger",
        "a ledger continues in a file that was emptied, as if nothing had been spent",
        "budget/journal.py",
        "if _digest(content[: seen.size]) != seen.digest:",
        "if False:",
        JOURNAL + "test_journal_that_lost_lines_takes_no_more",
    ),
    Mutant(
        "a ledger lost in copies",
        "a clone of an estimator whose fits a ledger counts is fitted outside without a warning",
        "training/sklearn_callbacks.py",
        'if getattr(self, "_charged", False):',
        "if False:",
        "tests/training/test_sklearn_callbacks.py::"
        "test_fit_outside_the_ledger_of_its_original_warns[classifier-clone]",
    ),
    Mutant(
        "a model of a step's own for nothing",
        "a step trains a private model inside a private search, and nobody pays",
        "budget/charging.py",
        '        _consume_prepaid_fit(planned, fit["private"] and fit["curve"] is None)\n',
        "",
        SEARCH + "test_step_that_fits_a_model_of_its_own_is_refused[private-fit-False]",
    ),
    Mutant(
        "a search that its threads do not know of",
        "a step trains a private model in a thread inside a private search, and nobody pays",
        "budget/charging.py",
        "    if active_ledger.is_searching():\n        _consume",
        "    if _PREPAID.get():\n        _consume",
        SEARCH + "test_step_that_fits_in_a_thread_or_process_is_refused[thread]",
    ),
    Mutant(
        "one against one let through",
        "fits on the rows of two classes each tell how many rows a class has",
        "preprocessing/_learners.py",
        "SparseCoder OneVsRestClassifier ",
        "SparseCoder OneVsOneClassifier OneVsRestClassifier ",
        "tests/preprocessing/test_learners.py::test_verdict_finds_wrappers_whose_fits_show_the_sizes_of_classes[OneVsOneClassifier]",
    ),
    Mutant(
        "marks that outlive the model",
        "what a fit leaves for comparison_scorer stays in memory when the model is gone",
        "inputs/provenance.py",
        "np.ndarray] = weakref.WeakKeyDictionary()",
        "np.ndarray] = {}",
        "tests/inputs/test_provenance.py::test_row_hashes_are_in_no_pickle_and_are_deleted_with_the_model",
    ),
    # ledgers
    Mutant(
        "a ledger that trusts every fit",
        "the ledger's whole is finite, whatever learns around the fits",
        "budget/journal.py",
        "if around is None and fits and not reasons:",
        "if False:",
        LEDGER + "test_report_counts_private_fits_and_no_estimator_around_them[bootstrap-with]",
    ),
    Mutant(
        "workers that run already",
        "a ledger is opened for workers that charge it with nothing",
        "budget/active_ledger.py",
        "if not backend.startswith(_BACKENDS):",
        "if False:",
        "tests/budget/test_active_ledger.py::test_activate_refuses_backends_whose_workers_run_already",
    ),
    Mutant(
        "folds that cost nothing",
        "a search in the block of a ledger has a whole that is not said to be infinite",
        "training/train.py",
        "        SCORES: run.sklearn_task.is_in_search,\n",
        "        SCORES: False,\n",
        LEDGER + "test_report_has_the_scores_of_a_search",
    ),
    Mutant(
        "a key of 64 bits",
        "the key of noise and batches can be guessed",
        "_utils/keystream.py",
        "secrets.token_bytes(32)",
        "secrets.token_bytes(8)",
        "tests/_utils/test_keystream.py::"
        "test_keystream_keys_are_256_bits_that_differ_where_their_seeds_do",
    ),
    Mutant(
        "silence on the noise of a GPU",
        "a report does not say that torch's generator drew the noise of its steps",
        "training/account.py",
        "notes += (words.DEVICE_NOISE,)",
        "pass",
        "tests/training/test_account.py::test_account_notes_the_generator_of_a_gpu",
    ),
    # batches
    Mutant(
        "the same batches each fit",
        "every fit draws its batches from one fixed seed, which voids amplification",
        "engine/streams.py",
        'return self._stream("batches")',
        "return Keystream(bytes(32))",
        AGAIN,
    ),
    # messages
    Mutant(
        "labels in errors",
        "a fit that meets a label outside the declared classes prints it",
        "inputs/target.py",
        'f"{name} has labels outside classes=, which must list them all.',
        'f"{name} has labels outside classes=: {y[codes < 0].tolist()}."\n            "',
        "tests/robustness/test_messages.py::"
        "test_no_message_holds_a_cell[labels as numbers beyond classes]",
    ),
    Mutant(
        "cells in others' errors",
        "what numpy or pandas says of a cell that they cannot read is passed on",
        "_utils/validate.py",
        "            without_text(error)\n            raise kind(",
        "            raise kind(",
        "tests/robustness/test_messages.py::test_no_message_holds_a_cell[weights of text]",
    ),
    Mutant(
        "arrays in errors",
        "an array that is given for a parameter is printed",
        "_utils/validate.py",
        "return outline(value) if is_data else repr(value)",
        "return repr(value)",
        "tests/robustness/test_messages.py::test_no_message_holds_a_cell[labels as a parameter]",
    ),
    Mutant(
        "sweeps beside the ledger",
        "commands do not open the ledger that they are given",
        "cli/_shell.py",
        "        if self.path is None:\n            return nullcontext()",
        "        if True:\n            return nullcontext()",
        "tests/cli/test_sweep_command.py::test_sweep_fit_and_report_share_a_ledger",
    ),
    Mutant(
        "sweeps that break off",
        "a sweep beyond its budget makes fits until one of them is refused",
        "model_selection/_sweep.py",
        "ledger.check(",
        "list(",
        "tests/cli/test_sweep_command.py::test_sweep_beyond_its_budget_is_refused_before_any_fit",
    ),
    Mutant(
        "functions that are not traced alone",
        "operations of a traced function are not looked at",
        "engine/per_sample/proof/tracing.py",
        "            if reason := reason_to_refuse(node):\n",
        "            if reason := None:\n",
        PROOF + "test_operations.py::"
        "test_trace_refuses_operations_outside_the_closed_list_by_name[aten.as_strided]",
    ),
    Mutant(
        "sizes of a batch for numbers",
        "a number in which two batches differ counts as the size, whatever it is",
        "engine/per_sample/proof/graphs.py",
        "        if remainder or k * SIZES[1] != b:\n",
        "        if False:\n",
        PROOF + "test_graphs.py::"
        "test_of_any_size_takes_only_sizes_that_follow_the_number_of_records",
    ),
    Mutant(
        "copies of constants that are dropped",
        "a constant is changed in place by each call, and so by the number of records",
        "engine/per_sample/proof/graphs.py",
        "    in_place = any(schema is not None and schema.is_mutable for schema in schemas)\n",
        "    in_place = False\n",
        PROOF + "test_graphs.py::test_simplify_leaves_copies_of_constants_that_change[any size]",
    ),
    Mutant(
        "traces that are not tried",
        "operations whose shapes do not belong together pass",
        "engine/per_sample/proof/record_trace.py",
        "        VmapRuleCheck(self.one, len(shared)).check(*shared, *record)\n",
        "",
        PROOF + "test_trace_checks.py::"
        "test_vmap_rule_check_refuses_shapes_that_couple_records[roll]",
    ),
    Mutant(
        "frozen normalisation in training",
        "frozen batch normalisation stays in training mode, and normalises by the batch",
        "engine/per_sample/proof/frozen_statistics.py",
        "            layer.eval()\n",
        "            layer.train()\n",
        PROOF + "test_frozen_statistics.py::test_hold_statistics_of_frozen_normalisation_alone",
    ),
    Mutant(
        "half frozen for frozen",
        "batch normalisation is taken for frozen if one of its parameters is",
        "engine/per_sample/proof/frozen_statistics.py",
        "not any(trains)",
        "not all(trains)",
        PROOF + "test_frozen_statistics.py::"
        "test_normalisation_that_is_not_frozen_is_refused[half frozen]",
    ),
    Mutant(
        "frozen numbers that move",
        "numbers that are stated to be public may change during a fit",
        "training/account.py",
        "if (n, sha256) != net.frozen_:",
        "if net.frozen_ is None:",
        "tests/e2e/test_frozen_backbones.py::test_callbacks_cannot_move_frozen_layers",
    ),
    Mutant(
        "one network for two fits",
        "a fit trains what the function returns, from which the next fit begins",
        "_networks.py",
        "return plain_copy(self._made()).float()",
        "return self._made().float()",
        "tests/test_networks.py::"
        "test_module_factories_start_fits_with_public_weights_that_none_shares[in_turn]",
    ),
    Mutant(
        "a fit within a fit",
        "a callback may train the net again, with the noise that its fit draws",
        "training/net.py",
        "if self._in_callback or self._loop is not None:",
        "if False:",
        USER_CODE
        + "test_callbacks_that_train_the_net_within_its_fit_are_refused[fit_loop-on_train_begin]",
    ),
    Mutant(
        "modules that count their calls",
        "a module that changes itself in the forward pass is accepted",
        "engine/per_sample/proof/module_code.py",
        "            if state_of(self.called) != after:\n",
        "            if False:\n",
        PROOF + "test_module_code.py::"
        "test_prove_refuses_modules_that_bring_records_together[activations kept in a list]",
    ),
    Mutant(
        "a module's code on the records",
        "training calls the module, not the operations that were traced",
        "engine/per_sample/records.py",
        "outputs: Tensor = self.code(x).forward(self.generator, self.values(), x)",
        "outputs: Tensor = self.module(x)",
        PROOF + "test_module_code.py::test_module_is_never_called_on_a_batch",
    ),
    Mutant(
        "parts that overlap",
        "norms of gradients are those of their parts where two parts share numbers",
        "engine/per_sample/terms.py",
        "is_apart = n_taken == taken.sum()",
        "is_apart = True",
        PER_SAMPLE + "test_terms.py::test_terms_of_each_use_equal_a_loop[symmetric]",
    ),
    Mutant(
        "numbers that are in two places",
        "a product whose numbers a parameter holds twice is measured once",
        "engine/per_sample/terms.py",
        "return order if are_unique else None",
        "return order",
        PER_SAMPLE + "test_terms.py::test_numbers_that_come_twice_have_no_places",
    ),
    Mutant(
        "rows of numbers for rows of positions",
        "where each number has a row of its own, the rows are taken for those of positions",
        "engine/per_sample/terms.py",
        "if _shape(rows) != (*_shape(gradients)[:1], *[1] * (len(_shape(gradients)) - 1)):",
        "if False:",
        PER_SAMPLE + "test_terms.py::test_terms_of_each_use_equal_a_loop[a row for each number]",
    ),
    Mutant(
        "last rows of a table",
        "rows that are counted from the end are others than those from the start",
        "engine/per_sample/terms.py",
        "rows = _call(graph, _ATEN.remainder.Scalar, rows, n)",
        "pass",
        PER_SAMPLE + "test_terms.py::test_terms_of_each_use_equal_a_loop[index from both ends]",
    ),
    Mutant(
        "codes beyond a table",
        "a record whose gradient lies in no row of a table counts for something else",
        "engine/per_sample/terms.py",
        "gradients, is_outside, torch.nan)",
        "gradients, is_outside, 0.0)",
        PER_SAMPLE + "test_bookkeeping.py::"
        "test_record_whose_gradient_lies_beyond_a_table_counts_for_nothing",
    ),
    Mutant(
        "sums by the largest person",
        "the person with the most records decides how all others are added up",
        "engine/per_sample/samplers.py",
        "self.b.shape[1] <= n_few",
        "self.b.shape[1] <= examples.largest",
        PER_SAMPLE + "test_records_rounding.py::"
        "test_person_with_the_most_records_does_not_change_how_others_are_rounded[finite]",
    ),
    Mutant(
        "operations beyond the closed list",
        "whatever torch traces passes for an operation on each record alone",
        "engine/per_sample/proof/operations.py",
        'if CLOSED_LIST.isdisjoint(listed) or "out" in target._overloadname:',
        "if False:",
        PROOF + "test_operations.py::"
        "test_trace_refuses_operations_outside_the_closed_list_by_name[aten._linalg_det]",
    ),
    Mutant(
        "kernels of one's own",
        "an operation of torch counts as such whoever carries it out",
        "engine/per_sample/proof/operations.py",
        'return name in python_definitions or name.replace("::", "/") in kernels',
        "return False",
        PROOF + "test_operations.py::test_trace_refuses_kernels_that_python_code_replaces",
    ),
    Mutant(
        "constants that count",
        "a traced function may change what it keeps from call to call",
        "engine/per_sample/proof/tracing.py",
        "InPlaceCheck(traced).check(*copies)",
        "traced(*copies)",
        PROOF + "test_trace_checks.py::"
        "test_in_place_check_refuses_changes_through_any_alias[add_-unsafe_split]",
    ),
    Mutant(
        "a second pass that is trusted",
        "weights of the first pass hold for whatever gradients the second one finds",
        "engine/per_sample/records.py",
        "return torch.where(longer, weight * (norm_before / norm).nan_to_num(nan=0.0), weight)",
        "return weight",
        "tests/engine/test_step.py::"
        "test_private_step_bounds_sums_if_the_second_pass_draws_other_masks[vmap]",
    ),
    Mutant(
        "masks from torch's generator",
        "dropout draws from the generator that all threads share",
        "engine/per_sample/records.py",
        "self.generator = torch.Generator(self.parameters[0].device)",
        "self.generator = torch.default_generator",
        "tests/estimators/test_base.py::test_fit_leaves_generators_input_and_threads_alone[Wide-None]",
    ),
    Mutant(
        "other masks for chunks",
        "the second pass over chunks draws other dropout masks than the first",
        "engine/per_sample/records.py",
        "                model.set_rng_state(rng_states[i])  # the dropout masks of the norms\n",
        "",
        "tests/engine/test_step.py::"
        "test_private_step_draws_the_same_masks_in_both_passes[book-keeping-1]",
    ),
    Mutant(
        "other masks in the second pass",
        "a second pass over the parts of a batch draws other dropout masks than the first",
        "engine/per_sample/records.py",
        "get_state() if self.draws else None",
        "get_state() if False else None",
        PER_SAMPLE + "test_records.py::"
        "test_dropout_masks_of_norm_and_weighted_sum_are_the_same[two passes]",
    ),
    Mutant(
        "reduced precision",
        "steps run at whatever precision the process prefers",
        "engine/step.py",
        "nullcontext() if is_exact(device) else",
        "nullcontext() if True else",
        "tests/engine/test_precision.py::"
        "test_private_step_runs_in_full_precision_whatever_the_process_prefers",
    ),
    Mutant(
        "convolutions in TF32",
        "products on a GPU are exact, but for those of cuDNN",
        "engine/precision.py",
        'for name in ("matmul", "conv", "rnn")',
        'for name in ("matmul",)',
        "tests/engine/test_precision.py::test_full_precision_covers_cudas_products",
    ),
    Mutant(
        "embeddings that cancel",
        "norms of embeddings lack their guard for output gradients that cancel",
        "engine/per_sample/samplers.py",
        "products += rounding(b.shape[2], b) * length[:, :, None] * length[:, None]",
        "pass",
        PER_SAMPLE + "test_samplers.py::test_embedding_norms_exceed_output_gradients_that_cancel",
    ),
    Mutant(
        "sequences that cancel",
        "norms of sequences lack their guard for positions that cancel",
        "engine/per_sample/samplers.py",
        "examples.sum(length).square_().mul_(slack)",
        "examples.sum(length).square_().mul_(slack if self.b.dim() == 2 else 0.0)",
        PER_SAMPLE + "test_samplers.py::"
        "test_products_of_many_positions_exceed_output_gradients_that_cancel",
    ),
    Mutant(
        "long sequences by half",
        "norms of persons with 40 positions and more are halved",
        "engine/per_sample/samplers.py",
        "norm2 = torch.bmm(b.transpose(1, 2), a).square_().sum((1, 2))",
        "norm2 = torch.bmm(b.transpose(1, 2), a).square_().sum((1, 2)) "
        "* (0.25 if a.shape[1] >= 40 else 1.0)",
        PER_SAMPLE
        + "test_samplers.py::test_product_norms_of_persons_with_sequences_equal_their_sums",
    ),
    Mutant(
        "squares that underflow",
        "a gradient of small inputs and large output gradients measures nothing",
        "engine/per_sample/samplers.py",
        "vecdot(self.a, self.a).add_(underflow(self.a))",
        "vecdot(self.a, self.a)",
        ROUNDING + "test_norms_exceed_gradients_whose_squares_underflow",
    ),
    Mutant(
        "stops for nothing",
        "a fit that a callback ends is charged for the steps taken",
        "training/train.py",
        "            if by_values:\n                _account",
        "            if False:\n                _account",
        USER_CODE + "test_fits_whose_stop_may_depend_on_values_cost_the_plan[callback]",
    ),
    Mutant(
        "rows for callbacks",
        "callbacks of a private fit get the training rows",
        "training/net.py",
        "        if not self.exposes_records:\n            kwargs",
        "        if False:\n            kwargs",
        USER_CODE + "test_callbacks_of_a_private_fit_receive_no_rows",
    ),
    Mutant(
        "copies of the entropy",
        "a copy of the streams draws the noise of the original",
        "engine/streams.py",
        "return Streams.fresh, ()",
        "return Streams, (self.entropy, self.init_entropy)",
        USER_CODE + "test_copies_of_a_running_net_hold_neither_seeds_nor_rows",
    ),
    Mutant(
        "copies of a running net",
        "a copy of a running net holds all that the net holds",
        "training/net.py",
        "return InferenceNet, (self.module, weights_of(self))",
        "return super().__reduce_ex__(protocol)",
        USER_CODE + "test_copies_of_a_running_net_hold_neither_seeds_nor_rows",
    ),
    Mutant(
        "attacks on whole batches",
        "an attack of a user's own gets all records of the batch",
        "training/loop.py",
        "attack = record_by_record(attack, engine, example, engine.loss.n_outputs)",
        "pass",
        USER_CODE + "test_attacks_bring_no_records_together[longer]",
    ),
    Mutant(
        "views clipped one by one",
        "the views of a record are not averaged: each is clipped by itself",
        "engine/batch.py",
        "Examples(self.examples.sizes * n, len(index))",
        "Examples(self.examples.sizes * (1 if self.examples.rows_per_example == 1 else n), "
        "len(index))",
        VIEWS
        + "test_one_record_or_person_moves_the_sum_by_at_most_the_bound[closed_form-records-3]",
    ),
    Mutant(
        "views of persons clipped record by record",
        "views of a record are averaged, but not those of the other records of its person",
        "engine/batch.py",
        "Examples(self.examples.sizes * n, len(index))",
        "Examples(n, len(index))",
        VIEWS
        + "test_one_record_or_person_moves_the_sum_by_at_most_the_bound[closed_form-persons-3]",
    ),
    Mutant(
        "views of whole batches",
        "an augmentation of a user's own gets all records of the batch",
        "augmentations.py",
        'record_by_record(blind, model, example, 1, "augment")',
        "blind",
        VIEWS + "test_views_are_made_from_their_own_record[reversed]",
    ),
    Mutant(
        "views that come again",
        "each step draws the views by the same random numbers",
        "training/loop.py",
        "        return self.batches.select(index, reuses=True).repeated(self.n_views)\n",
        "        self.engine.generator.manual_seed(0)\n"
        "        return self.batches.select(index, reuses=True).repeated(self.n_views)\n",
        VIEWS + "test_views_are_drawn_anew_in_each_step_for_each_copy[False]",
    ),
    Mutant(
        "memory of predictions",
        "what a module keeps of the rows that it predicts stays in it",
        "training/inference.py",
        "module = copy.deepcopy(module, {id(p): p for p in module.parameters()}).eval()",
        "module = module.eval()",
        USER_CODE + "test_modules_see_no_training_row_and_keep_no_prediction",
    ),
    Mutant(
        "output gradients lost in squares",
        "output gradients along a sequence that underflow hide large inputs",
        "engine/per_sample/samplers.py",
        "length = lengths(self.b).add_(least)",
        "length = lengths(self.b)",
        ROUNDING + "test_norms_exceed_gradients_of_sequences_whose_output_gradients_underflow",
    ),
    Mutant(
        "wide rows added up one by one",
        "norms of wide rows round down as often as they have numbers",
        "engine/per_sample/samplers.py",
        "    if width <= 4096:\n",
        "    if True:\n",
        ROUNDING + "test_norms_of_wide_rows_do_not_add_up_their_rounding",
    ),
    Mutant(
        "optimizers that stop for nothing",
        "a fit that a user's optimizer ends is charged for the steps taken",
        "training/train.py",
        "return bool(foreign or sees)",
        "return bool(sees)",
        USER_CODE + "test_fits_whose_stop_may_depend_on_values_cost_the_plan[optimizer]",
    ),
    Mutant(
        "modules that stop for nothing",
        "a fit that a user's module ends is charged for the steps taken",
        "training/train.py",
        " or isinstance(run.plan.module, Factory)",
        "",
        USER_CODE + "test_fits_whose_stop_may_depend_on_values_cost_the_plan[module]",
    ),
    Mutant(
        "noise of a forked fit",
        "a copy of the process continues a fit with the same noise",
        "training/run.py",
        "if os.getpid() != self.pid:",
        "if False:",
        USER_CODE + "test_fit_continued_by_a_forked_process_is_refused",
    ),
    Mutant(
        "numbers with code of their own",
        "the numbers of an attack are used as they are given",
        "augmentations.py",
        "pgd, x = self.checked(), x.detach()",
        "pgd, x = self, x.detach()",
        USER_CODE + "test_numbers_of_an_attack_see_no_row",
    ),
    Mutant(
        "parameters that change places",
        "parameters are told apart by their order alone",
        "training/loop.py",
        "return [(name, id(p)) for name, p in named if p.requires_grad]",
        "return sorted({id(p) for name, p in named if p.requires_grad})",
        USER_CODE + "test_parameters_that_change_places_are_refused",
    ),
    # counts of scores
    Mutant(
        "unnoised histogram",
        "the counts by score are released as they are",
        "model_selection/_score_counts.py",
        "return noisy(sums, SENSITIVITY, noise_multiplier, generator, kind)",
        "return sums",
        COUNTS + "test_noisy_histograms_carry_fresh_noise_of_the_claimed_scale",
    ),
    Mutant(
        "noise for one class only",
        "the counts of the second class get the noise of the first",
        "model_selection/_score_counts.py",
        "return noisy(sums, SENSITIVITY, noise_multiplier, generator, kind)",
        "return sums + noisy(0 * sums[:1], SENSITIVITY, noise_multiplier, generator)",
        COUNTS + "test_noisy_histograms_carry_fresh_noise_of_the_claimed_scale",
    ),
    Mutant(
        "sensitivity of a plain histogram",
        "a record adds a column to the counts by score, and is taken to add one",
        "model_selection/_score_counts.py",
        "SENSITIVITY = float(np.linalg.norm(square_root(N_BINS)[:, 0]))",
        "SENSITIVITY = 1.0",
        COUNTS + "test_score_counts_move_with_one_record_by_at_most_their_sensitivity",
    ),
    Mutant(
        "records counted for nothing",
        "the training records are counted as public ones are",
        "model_selection/_threshold_classifier.py",
        "noise, logits = _paid_noise(report), private_logits(estimator, X)",
        "noise, logits = 0.0, private_logits(estimator, X)",
        THRESHOLD + "test_counts_have_the_noise_that_the_report_holds[False-standard]",
    ),
    Mutant(
        "scores by the code of the network",
        "private records pass through code that was proven for training only",
        "training/inference.py",
        "return _in_batches(strategy.forward, x, device, stays_sparse=stays_sparse)",
        "return _in_batches(module.eval(), x, device)",
        THRESHOLD + "test_private_logits_are_of_each_record_alone[evaluation]",
    ),
    Mutant(
        "shares of more than the budget",
        "the fit is calibrated to the whole budget, and the counts come on top",
        "training/plan.py",
        "calibrate_noise([*one_time, unit], epsilon,",
        "calibrate_noise([unit], epsilon,",
        THRESHOLD + "test_fit_and_counts_cost_the_epsilon_of_the_estimator[global_adapt-pld]",
    ),
    Mutant(
        "counts that are not charged",
        "the fit does not charge for the counts that follow it",
        "training/train.py",
        "run.releases.append(plan.one_time_releases[SCORE_COUNTS])",
        "pass",
        THRESHOLD + "test_counts_have_the_noise_that_the_report_holds[True-gaussian_sum]",
    ),
    # features of pictures
    Mutant(
        "features normalised over the batch",
        "the features of a picture depend on the others of its batch",
        "features/_scattering.py",
        "layer_norm(p.flatten(1), (p[0].numel(),), eps=_EPS)",
        "(p.flatten(1) - p.mean()) / (p.var() + _EPS).sqrt()",
        "tests/features/test_scattering.py::test_a_picture_gets_the_same_features_beside_others",
    ),
    Mutant(
        "a frozen network that sees records",
        "the code of a network runs on the records, which it may keep or bring together",
        "features/_frozen.py",
        "return lambda x: trace(None, tensors, x).flatten(1)",
        "return lambda x: module(x).flatten(1)",
        "tests/features/test_frozen.py::test_no_code_of_a_network_runs_on_the_records",
    ),
    Mutant(
        "copies of features",
        "a statement names features that were changed since",
        "inputs/provenance.py",
        "return origin if same else UNKNOWN",
        "return origin",
        "tests/e2e/test_pictures.py::test_statement_names_features_as_computed",
    ),
    # one model by several processes
    Mutant(
        "equal batches in all processes",
        "processes with equal seeds and records draw equal masks, so that nothing is amplified",
        "engine/streams.py",
        "return Streams((*self.entropy, rank), self.init_entropy)",
        "return self",
        SHARED + "test_processes_draw_their_batches_independently[0]",
    ),
    Mutant(
        "an empty batch stays away",
        "a process whose batch is empty takes no part in the step",
        "engine/step.py",
        "    generator.all_reduce_(gradient)\n",
        "    generator.all_reduce_(gradient) if len(batch) else gradient\n",
        SHARED + "test_process_with_an_empty_batch_takes_part",
    ),
    Mutant(
        "noise in every process",
        "each process draws the whole noise, so that the sum has too much, and the weights differ",
        "training/processes.py",
        "        if self._processes.rank:\n            return out.zero_()\n",
        "",
        SHARED + "test_shared_noise_of_a_sum_is_drawn_once[2]",
    ),
    Mutant(
        "noise by parts",
        "each process is to draw its part of the noise, and only the first draws",
        "training/processes.py",
        "return self._noise.fill_(out, sensitivity, noise_multiplier)",
        "return self._noise.fill_(out, sensitivity, noise_multiplier / self._processes.size**0.5)",
        SHARED + "test_shared_noise_of_a_sum_is_drawn_once[3]",
    ),
    Mutant(
        "the n of one process",
        "a sum over all processes is divided by the batch of one, and so is its noise",
        "estimators/base.py",
        "processes.sum(data.n_examples)",
        "data.n_examples",
        SHARED + "test_processes_release_without_noise_what_one_does[dpsgd]",
    ),
    Mutant(
        "the groups of one process",
        "each process samples by the counts of its own records",
        "training/run.py",
        "self.processes.sum(counts)",
        "counts",
        SHARED + "test_group_counts_are_those_of_all_processes",
    ),
    Mutant(
        "weights that are not compared",
        "processes go on with different weights",
        "training/loop.py",
        'self.processes.check_same({"the weights after an epoch": weights.hex()})',
        "pass",
        SHARED + "test_check_epoch_refuses_weights_that_differ",
    ),
    Mutant(
        "a charge for each process",
        "every process charges the ledger for the one fit",
        "training/train.py",
        "    if run.processes.rank:\n",
        "    if False:\n",
        SHARED + "test_ledger_is_charged_once",
    ),
    # each release in each of its modes, without noise and with a sensitivity of .7
    Mutant(
        "a gradient of .7",
        "the gradient has .7 of its noise",
        "engine/step.py",
        "fill_(gradient, clip.bound,",
        "fill_(gradient, 0.7 * clip.bound,",
        RELEASES + "test_steps_have_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "a gradient of persons without noise",
        "a fit on persons releases its gradient as it is",
        "engine/step.py",
        "fill_(gradient, clip.bound,",
        "fill_(gradient, clip.bound * (batch.examples.rows_per_example == 1),",
        RELEASES + "test_steps_have_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "a gradient of persons of .7",
        "a fit on persons has .7 of the noise of its gradient",
        "engine/step.py",
        "fill_(gradient, clip.bound,",
        "fill_(gradient, clip.bound * (1 if (batch.examples.rows_per_example == 1) else 0.7),",
        RELEASES + "test_steps_have_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "a count of .7",
        "the counts of a step have .7 of their noise",
        "engine/step.py",
        "generator.fill_(noise, query.sensitivity, query.noise_multiplier)",
        "generator.fill_(noise, 0.7 * query.sensitivity, query.noise_multiplier)",
        RELEASES + "test_steps_have_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "sums of several processes without noise",
        "the first of several processes draws no noise, as the others",
        "training/processes.py",
        "        if self._processes.rank:\n            return out.zero_()",
        "        if True:\n            return out.zero_()",
        RELEASES + "test_steps_have_the_noise_that_is_charged[processes]",
    ),
    Mutant(
        "sums of several processes of .7",
        "the first of several processes draws .7 of the noise",
        "training/processes.py",
        "return self._noise.fill_(out, sensitivity, noise_multiplier)",
        "return self._noise.fill_(out, 0.7 * sensitivity, noise_multiplier)",
        RELEASES + "test_steps_have_the_noise_that_is_charged[processes]",
    ),
    Mutant(
        "a continued fit without noise",
        "the second fit of a warm start adds no noise",
        "training/train.py",
        "        _load_weights(net, run.previous)\n",
        "        _load_weights(net, run.previous)\n"
        "        run.plan = run.plan.with_mechanism(noise_multiplier=0.0)\n",
        RELEASES + "test_steps_have_the_noise_that_is_charged[continued]",
    ),
    Mutant(
        "a continued fit of .7",
        "the second fit of a warm start adds .7 of its noise",
        "training/train.py",
        "        _load_weights(net, run.previous)\n",
        "        _load_weights(net, run.previous)\n"
        "        noise = 0.7 * run.plan.mechanism.noise_multiplier\n"
        "        run.plan = run.plan.with_mechanism(noise_multiplier=noise)\n",
        RELEASES + "test_steps_have_the_noise_that_is_charged[continued]",
    ),
    Mutant(
        "group counts of .7",
        "counts of groups have .7 of their noise",
        "training/run.py",
        "noisy(counts, sensitivity,",
        "noisy(counts, 0.7 * sensitivity,",
        RELEASES + "test_group_counts_have_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "group counts of processes without noise",
        "several processes add up the sizes of groups as they are",
        "training/run.py",
        "0.0 if self.processes.rank else",
        "0.0 if self.processes.size > 1 else",
        RELEASES + "test_group_counts_have_the_noise_that_is_charged[processes]",
    ),
    Mutant(
        "group counts of processes of .7",
        "several processes add .7 of the noise to the sizes of groups",
        "training/run.py",
        "0.0 if self.processes.rank else",
        "0.0 if self.processes.rank else (0.7, 1)[self.processes.size == 1] *",
        RELEASES + "test_group_counts_have_the_noise_that_is_charged[processes]",
    ),
    Mutant(
        "group counts of records",
        "a person with several records counts several times in the size of a group",
        "training/train.py",
        "_count_groups(run, group_of_persons(table.groups.code, table.person))",
        "_count_groups(run, table.groups.code)",
        RELEASES + "test_group_counts_have_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "one noise for all one-time releases",
        "the counts of groups and of columns get the same noise",
        "engine/streams.py",
        'self._stream("release", what)',
        'self._stream("release")',
        AGAIN,
    ),
    Mutant(
        "curves by exact counts",
        "fine curves are chosen by exact counts; the noisy ones are drawn, charged and dropped",
        "training/column_counts.py",
        "    joint = run.noisy_counts(joint, release, sensitivity)",
        "    run.noisy_counts(joint, release, sensitivity)",
        INTERFERENCE + "test_records_show_in_noisy_releases_alone[amounts]",
    ),
    Mutant(
        "counts kept for the next fit",
        "noisy counts are those of the fit before, if it counted the same",
        "training/run.py",
        "counts = noisy(counts, sensitivity, noise, generator, self.spec.noise_sampler)",
        "new = noisy(counts, sensitivity, noise, generator, self.spec.noise_sampler)\n"
        "            counts = vars(Run.noisy_counts).setdefault((release.what, counts.shape), new)",
        AGAIN,
    ),
    Mutant(
        "one-time noise that is kept",
        "one-time releases of the same size have the same noise",
        "privacy/one_time_noise.py",
        "    return values + sensitivity",
        "    noise = vars(generator_of).setdefault(values.shape, noise)\n"
        "    return values + sensitivity",
        AGAIN,
    ),
    Mutant(
        "the same one-time noise each fit",
        "the noise of all one-time releases comes from one fixed seed",
        "privacy/one_time_noise.py",
        "generator.standard_normal(values.shape)",
        "np.random.default_rng(7).standard_normal(values.shape)",
        AGAIN,
    ),
    Mutant(
        "the same noise of the steps each fit",
        "the noise of the steps comes from one fixed seed",
        "engine/streams.py",
        'Noise(self._stream("steps"), device, kind)',
        "Noise(Keystream.seeded(7), device, kind)",
        AGAIN,
    ),
    Mutant(
        "the same persons' records each fit",
        "which records of a person take part comes from one fixed seed",
        "engine/streams.py",
        'self._stream("persons")',
        "Keystream.seeded(7)",
        AGAIN,
    ),
    Mutant(
        "the same secrets each search",
        "the number of trials, their draws and the noise of scores come from one fixed seed",
        "model_selection/_trials.py",
        "return Keystream.fresh()",
        "return Keystream.seeded(7)",
        AGAIN,
    ),
    Mutant(
        "the same noise in each table",
        "the noise of released tables comes from one fixed seed",
        "metrics/_group_tables.py",
        "np.arange(len(y_true)), Keystream.fresh()",
        "np.arange(len(y_true)), Keystream.seeded(7)",
        AGAIN,
    ),
    Mutant(
        "seeds in a progress bar",
        "the progress bar of a fitted net holds the seeds of its noise",
        "training/train.py",
        "merge_consecutive(releases), plan.delta",
        "merge_consecutive(run.releases), plan.delta",
        INTERFERENCE + "test_records_show_in_noisy_releases_alone[verbose]",
    ),
    Mutant(
        "column counts of one table",
        "the noise of the counts of several amounts and pairs is that of one",
        "training/column_counts.py",
        "np.linalg.norm(weights)",
        "weights.max()",
        RELEASES + "test_column_counts_have_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "column counts of records",
        "a person with several records counts several times among the amounts and pairs",
        "training/column_counts.py",
        "(table.person >= 0) / np.bincount(table.person + 1)[table.person + 1]",
        "1.0 * (table.person >= 0)",
        RELEASES + "test_column_counts_have_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "score counts of persons without noise",
        "the counts by score are those of persons as they are",
        "model_selection/_score_counts.py",
        "sums = noisy_histograms(histograms, noise_multiplier,",
        "sums = noisy_histograms(histograms, noise_multiplier * (share is None),",
        RELEASES + "test_score_counts_have_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "score counts of persons of .7",
        "the counts of persons by score have .7 of their noise",
        "model_selection/_score_counts.py",
        "sums = noisy_histograms(histograms, noise_multiplier,",
        "sums = noisy_histograms(histograms, noise_multiplier * (0.7, 1)[share is None],",
        RELEASES + "test_score_counts_have_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "quantiles without noise",
        "the counts behind quantiles are released as they are",
        "preprocessing/_quantile_scaler.py",
        "release.joint_noise_multiplier\n",
        "0.0\n",
        RELEASES + "test_quantiles_have_the_noise_that_is_charged",
    ),
    Mutant(
        "quantiles of one column",
        "the counts behind quantiles have the noise of a single column",
        "preprocessing/_quantile_scaler.py",
        "tree_sensitivity(n_columns, self.depth), ",
        "tree_sensitivity(1, self.depth), ",
        RELEASES + "test_quantiles_have_the_noise_that_is_charged",
    ),
    Mutant(
        "a table without noise",
        "a released table holds the counts as they are",
        "metrics/_group_tables.py",
        "discrete_laplace(Fraction(epsilon), generator.integers) for _",
        "0 for _",
        RELEASES + "test_group_table_has_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "a table for half a record",
        "a released table has the noise of half the sensitivity",
        "metrics/_group_tables.py",
        "discrete_laplace(Fraction(epsilon), generator.integers)",
        "discrete_laplace(Fraction(2 * epsilon), generator.integers)",
        RELEASES + "test_group_table_has_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "a table of persons without noise",
        "a released table counts persons as they are",
        "metrics/_group_tables.py",
        "discrete_laplace(Fraction(epsilon), generator.integers) for _",
        "discrete_laplace(Fraction(epsilon), generator.integers) if person is None else 0 for _",
        RELEASES + "test_group_table_has_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "a table of several records",
        "a released table counts two records of a person",
        "metrics/_group_tables.py",
        "_persons.thinned(person, 1, gen",
        "_persons.thinned(person, 2, gen",
        RELEASES + "test_group_table_has_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "a trial's score without noise",
        "trials are compared by their exact scores",
        "model_selection/_trials.py",
        "[float(count)]), 1.0, noise, rng)",
        "[float(count)]), 1.0, 0.0, rng)",
        RELEASES + "test_scores_of_trials_have_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "a trial's score of .7",
        "the score of a trial has .7 of its noise",
        "model_selection/_trials.py",
        "[float(count)]), 1.0, noise, rng)",
        "[float(count)]), 0.7, noise, rng)",
        RELEASES + "test_scores_of_trials_have_the_noise_that_is_charged[one]",
    ),
    Mutant(
        "a trial's score of persons without noise",
        "trials are compared by their exact scores of persons",
        "model_selection/_trials.py",
        "[float(count)]), 1.0, noise, rng)",
        "[float(count)]), float(share is None), noise, rng)",
        RELEASES + "test_scores_of_trials_have_the_noise_that_is_charged[persons]",
    ),
    Mutant(
        "a trial's score of persons of .7",
        "the score of persons has .7 of its noise",
        "model_selection/_trials.py",
        "[float(count)]), 1.0, noise, rng)",
        "[float(count)]), 1.0 if share is None else 0.7, noise, rng)",
        RELEASES + "test_scores_of_trials_have_the_noise_that_is_charged[persons]",
    ),
    # persons, ledgers and processes that are one, and taken for several
    Mutant(
        "a process that has seen nothing",
        "a process does not learn what the one that started it has seen of the ledger",
        "budget/active_ledger.py",
        '"data": data, "memory": memory})',
        '"data": data, "memory": None})',
        "tests/budget/test_active_ledger.py::test_processes_inherit_what_their_parent_has_read_of_the_file",
    ),
    Mutant(
        "persons by their spelling",
        "a person whose name is written in two forms of Unicode is two persons",
        "inputs/persons.py",
        'unicodedata.normalize("NFKC", str.__str__(value))',
        "str.__str__(value)",
        "tests/inputs/test_persons.py::test_codes_are_the_same_for_every_spelling_of_a_person",
    ),
    Mutant(
        "numbers and their texts",
        'a person who is 17 in one row and "17" in another is two persons',
        "inputs/persons.py",
        "return str(int(value)) if is_whole else value",
        "return value",
        "tests/inputs/test_persons.py::test_codes_are_the_same_for_every_spelling_of_a_person",
    ),
    Mutant(
        "patients and stays in one ledger",
        "a ledger adds up fits that protect a patient and fits that protect a stay",
        "budget/privacy_ledger.py",
        "elif persons and others:",
        "elif False:",
        PERSONS + "test_fits_to_two_kinds_of_persons_have_no_sum[fit]",
    ),
    Mutant(
        "patients and stays in one model",
        "a warm start adds up fits that protect a patient and fits that protect a stay",
        "training/warm_start.py",
        "(before or table.persons, table.persons or before)",
        "(0, 0)",
        PERSONS + "test_fits_to_two_kinds_of_persons_have_no_sum[warm start]",
    ),
    Mutant(
        "positions taken for names",
        "persons of the first column of two arrays count as the same, and nothing says so",
        "privacy/privacy_report.py",
        "column is not None and not column.isdecimal()",
        "column is not None",
        PERSONS + "test_fits_to_persons_without_names_are_assumed_to_be_on_the_same",
    ),
    # methods of one's own, what a trace keeps, what fails, what rounding decides
    Mutant(
        "hooks as they are written",
        "a method of one's own weighs records by how many there are",
        "engine/record_hooks.py",
        "if not method.private or is_shipped(method):",
        "if True:",
        HOOKS + "test_record_hooks_let_one_record_move_a_step_by_its_bound_at_most[ByNumber]",
    ),
    Mutant(
        "methods that say they are shipped",
        "a class is trusted by the module that it names, which a call sets to abc",
        "engine/record_hooks.py",
        "return home_class is base and package",
        "return package",
        "tests/engine/test_contracts.py::"
        "test_refuse_broken_stops_a_fit_before_it_is_paid[CalledType]",
    ),
    Mutant(
        "less noise than planned",
        "a bound that a fit releases lowers the noise of a query after it was charged",
        "training/loop.py",
        "if self.plan.is_accounted and (is_other or",
        "if False and (is_other or",
        "tests/training/test_loop.py::"
        "test_loop_refuses_less_noise_and_higher_rates_than_planned[QuietLater()]",
    ),
    Mutant(
        "methods that nobody tried",
        "a method that weighs records by the mean of their batch is fitted",
        "engine/contracts.py",
        "if not method.private or is_shipped(method):",
        "if True:",
        "tests/engine/test_contracts.py::"
        "test_refuse_broken_stops_a_fit_before_it_is_paid[MeanOfTheBatch]",
    ),
    Mutant(
        "errors that tell a value",
        "a record with an index beyond a tensor ends the fit",
        "engine/per_sample/proof/record_trace.py",
        "if is_out_of_memory(error):",
        "if True:",
        PROOF + "test_record_trace.py::"
        "test_no_error_or_warning_of_a_fit_holds_the_value_of_a_failing_record[module]",
    ),
    Mutant(
        "decisions by the last bits",
        "a record that leaves the batch turns the gates of others",
        "engine/per_sample/proof/rounding.py",
        "        if is_rounded and _decides(node):\n",
        "        if False:\n",
        PROOF + "test_rounding.py::test_steady_where_decisions_are_by_exact_numbers",
    ),
    Mutant(
        "decisions by products of a batch",
        "the last bits of a product that decides depend on where a record stands",
        "engine/per_sample/proof/rounding.py",
        "if _name(node) in _PRODUCTS:",
        "if False:",
        PROOF + "test_rounding.py::"
        "test_steady_replaces_products_of_a_batch_that_lead_to_a_decision",
    ),
    Mutant(
        "a ledger of another process",
        "a ledger that the first of several processes lacks is charged nothing",
        "training/processes.py",
        "if each not in (None, ledgers[0]):",
        "if False:",
        SHARED + "test_check_parts_needs_the_ledger_of_process_0[none]",
    ),
    Mutant(
        "all rows in each process",
        "several processes load the same records, each of which counts twice",
        "training/processes.py",
        "if len(set(digests)) < processes.size:",
        "if False:",
        SHARED + "test_check_parts_refuses_processes_with_the_same_records[all rows]",
    ),
)

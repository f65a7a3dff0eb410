"""What the panel's tests are made of: runs of each family as commits, their windows, and their screens."""

from collections.abc import Mapping
from typing import Any

from export.making import FakeClock, commit
from rltel.export.panel.glyphs import LINES, Glyphs
from rltel.export.panel.history import History
from rltel.export.panel.model import Model, model_of
from rltel.export.panel.sample import Sample, sample_of
from rltel.export.panel.screen import draw
from rltel.export.panel.window import View, Window

SECOND = 1_000_000_000


class Panel:
    """A window and what belongs to it, with a clock that stands still until it is told."""

    def __init__(self, window_s: float = 2.0, **about: Any) -> None:
        self.clock = FakeClock()
        self.window = Window(window_s, self.clock.monotonic_ns)
        self.history = History()
        self.facts: dict[str, Any] = {}
        self._window_s = window_s
        self._about = about

    def add(self, values: Mapping[str, float], after_s: float = 0.0, **changed: Any) -> None:
        """One more commit, some time after the last."""
        self.clock.now += round(after_s * SECOND)
        self.put(sample_of(commit(values, **changed)))

    def put(self, sample: Sample) -> None:
        """One more sample, now."""
        self.window.add(sample)
        if sample.is_learners:
            self.history.add(sample, self.clock.now)

    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self.clock.now += round(seconds * SECOND)

    @property
    def view(self) -> View:
        """What the window holds."""
        view = self.window.view()
        assert view is not None
        return view

    @property
    def model(self) -> Model:
        """What there is to show."""
        progress = self.history.progress(self.clock.now, self.facts.get("max_iterations"))
        return model_of(self.view, progress, self.facts, window_s=self._window_s, **self._about)

    def lines(self, width: int, height: int | None = None, glyphs: Glyphs = LINES) -> list[str]:
        """The screen, without styles."""
        return [line.plain for line in draw(self.model, width, height, glyphs)]


SAC = {
    "Train/iteration": 12_344.0,
    "Train/mean_reward": 187.4321,
    "Train/mean_episode_length": 812.4,
    "Episode/timeout_rate": 0.8125,
    "Loss/actor": -12.3456,
    "Loss/critic": 14.5,
    "Loss/temperature": -0.0012,
    "Loss/entropy": 3.25,
    "Policy/temperature": 0.0421,
    "Train/actor_gradient_norm": 0.5521,
    "Train/critic_gradient_norm": 2.125,
    "Train/target_q_max": 210.5,
    "Train/target_q_min": -3.75,
    "Train/replay_ingress_depth": 8.0,
    "Train/replay_ingress_occupancy": 2.0,
    "Train/replay_ingress_high_water": 5.0,
    "Train/replay_ingress_backpressure_wait_ms": 1234.5,
    "Train/replay_ingress_dropped_batches": 0.0,
    "reward/tracking_lin_vel": 0.8123,
    "reward/action_rate": -0.0312,
    "reward/feet_air_time": 0.0,
    "Perf/total_fps": 22_756.0,
    "Perf/iteration_time": 0.05,
    "Perf/learner_collector_wait_ms": 1.2,
    "Perf/learner_inference_ms": 3.4,
    "Perf/learner_collector_release_ms": 0.1,
    "Perf/learner_replay_batch_wait_ms": 0.3,
    "Perf/learner_replay_sample_ms": 0.5,
    "Perf/learning_time": 0.04,
    "Perf/learner_inference_h2d_ms": 0.4,
    "Perf/learner_inference_forward_ms": 2.5,
    "Perf/learner_inference_d2h_ms": 0.4,
    "Perf/replay_ingress_h2d_submit_ms": 2.2,
    "Perf/collector_inference_request_ms": 0.05,
    "Perf/collector_learner_action_wait_ms": 20.0,
    "Perf/collector_env_step_ms": 10.0,
    "Perf/collector_transition_extract_ms": 0.2,
    "Perf/collector_replay_write_ms": 1.0,
    "Perf/collector_metrics_publish_ms": 0.4,
    "Perf/collector_env_step_backend_ms": 8.0,
    "Perf/collector_env_step_update_state_ms": 1.0,
    "Perf/collector_env_step_reset_done_ms": 0.2,
    "Perf/collector_inference_in_flight": 1.0,
}
"""A commit of SAC, as its adapter logs it: V01's learner, V09's collector."""

APPO = {
    "Train/iteration": 41.0,
    "Train/mean_reward": -3.5,
    "Train/mean_episode_length": 97.25,
    "Loss/surrogate": -0.0123,
    "Loss/value": 0.4567,
    "Loss/entropy": 8.125,
    "Loss/learning_rate": 3e-4,
    "Policy/mean_std": 0.7812,
    "Train/global_gradient_norm": 0.9,
    "Train/approx_kl": 0.0087,
    "Train/clip_fraction": 0.1234,
    "Train/behavior_to_current_log_prob_delta": -0.0021,
    "Train/vtrace_rho_clip_fraction": 0.25,
    "Train/vtrace_rho_p99": 1.75,
    "Train/ring_available_slots": 3.0,
    "Train/rollouts_read": 1.0,
    "Perf/total_fps": 2_730_666.666666667,
    "Perf/iteration_time": 0.018,
    "Perf/learner_collector_wait_ms": 1.0,
    "Perf/learner_replay_stage_ms": 2.0,
    "Perf/learner_replay_sample_ms": 1.0,
    "Perf/learning_time": 0.012,
    "Perf/learner_weight_publish_ms": 2.0,
    "Perf/collector_mlp_infer_ms": 0.3,
    "Perf/collector_env_step_ms": 0.4,
    "Perf/collector_env_step_backend_ms": 0.25,
    "Perf/collection_time": 0.018,
}
"""V03."""

PPO = {
    "Train/mean_reward": 24.125,
    "Train/mean_episode_length": 998.0,
    "Loss/value": 0.0312,
    "Loss/surrogate": -0.0051,
    "Loss/entropy": 12.5,
    "Loss/symmetry": 0.25,
    "Loss/learning_rate": 1e-3,
    "Policy/mean_std": 0.5,
    "Perf/total_fps": 81_920.0,
    "Perf/collection_time": 0.9,
    "Perf/learning_time": 0.3,
    "reward/upright": 0.75,
    "Episode_Termination/fell_over": 12.0,
    "Rnd/weight": 0.125,
}
"""What rsl_rl logs: no wall time of the iteration."""

LLM = {
    "timeperf/iteration": 40.0,
    "timeperf/sample": 25.0,
    "timeperf/generate": 24.0,
    "timeperf/tool_call": 0.1,
    "timeperf/reward": 2.0,
    "timeperf/verify": 1.5,
    "timeperf/train": 11.0,
    "timeperf/forward": 4.0,
    "timeperf/backward": 5.0,
    "timeperf/optimizer": 0.5,
    "timeperf/sync": 1.5,
    "timeperf/checkpoint_write": 6.0,
    "timeperf/rollout/session": 20.0,
    "timeperf/rollout/queue_wait": 1.0,
    "timeperf/rollout/generate": 15.0,
    "timeperf/rollout/decode": 14.0,
    "timeperf/rollout/reward": 0.5,
    "ppo_actor/update/actor_loss": 0.0213,
    "ppo_actor/update/entropy": 0.4312,
    "ppo_actor/update/clip_ratio": 0.0125,
    "ppo_actor/update/grad_norm": 0.85,
    "ppo_actor/train_infer/kl_k1": 0.0007,
    "ppo_actor/train_infer/kl_k3": 0.0008,
    "ppo_actor/train_infer/ratio_outside_1.5": 0.0004,
    "ppo_actor/train_infer/ratio_outside_2": 0.0001,
    "rollout/reward": 0.625,
    "groups/pass@1": 0.5625,
    "groups/zero_variance_fraction": 0.25,
    "seq_len": 1234.5,
    "my/own_number": 7.25,
}
"""GRPO with a rollout worker that has a clock."""

ASYNC = {
    "timeperf/iteration": 40.0,
    "timeperf/sample": 12.0,
    "timeperf/batch_wait": 11.5,
    "timeperf/train": 26.0,
    "timeperf/forward": 9.0,
    "timeperf/backward": 15.0,
    "timeperf/sync": 1.5,
    "timeperf/tokenize": 0.25,
    "reward": 0.6875,
    "rollout/reward": 0.625,
    "eval-rollout/reward": 0.75,
    "reward/format": 0.9375,
    "reward/correct": 0.5,
    "groups/pass@1": 0.5625,
    "groups/pass@8": 0.875,
    "groups/best@8": 0.9,
    "groups/length": 987.5,
    "groups/truncated_fraction": 0.0625,
    "groups/zero_variance_fraction": 0.25,
    "groups/n_groups": 64.0,
    "ppo_actor/update/actor_loss": -0.0213,
    "ppo_actor/update/entropy": 0.4312,
    "ppo_actor/update/kl_loss": 0.0031,
    "ppo_actor/update/clip_ratio": 0.0125,
    "ppo_actor/update/grad_norm": 0.85,
    "ppo_actor/update/lr": 1e-6,
    "ppo_critic/update/value_loss": 0.125,
    "ppo_critic/update/grad_norm": 12.5,
    "ppo_actor/train_infer/kl_k1": 0.0007,
    "ppo_actor/train_infer/kl_k3": 0.0008,
    "ppo_actor/train_infer/logp_abs_diff": 0.0164,
    "ppo_actor/train_infer/effective_sample_size": 0.9973,
    "ppo_actor/train_infer/nonfinite_logp_fraction": 0.0005,
    "ppo_actor/update/version_stats/sample_staleness_theta_avg": 0.75,
    "ppo_actor/update/version_stats/sample_staleness_theta_max": 3.0,
    "ppo_actor/update/version_stats/stale_token_fraction": 0.5,
    "ppo_actor/update/version_stats/future_token_fraction": 0.0,
    "ppo_actor/update/version_stats/v_theta": 99.0,
    "train_perf/tokens": 1_250_000.0,
    "train_perf/seconds": 25.0,
    "train_perf/tokens_per_second": 50_000.0,
    "train_perf/mfu": 0.3812,
    **{f"moe_balance/layer_{layer}/max_over_ideal": 1.0 + layer % 17 / 10 for layer in range(48)},
    **{f"moe_balance/layer_{layer}/normalized_entropy": 0.9 for layer in range(48)},
    "rollout/sessions/accepted": 512.0,
    "rollout/sessions/rejected": 3.0,
    "rollout/sessions/failed": 1.0,
    "rollout/sessions/dropped": 0.0,
    "rollout/sessions/in_flight": 640.0,
    "rollout/sessions/consumed": 512.0,
    "rollout/sessions/staleness": 1.25,
    "rollout/timeperf/generate": 9.0,
    "rollout/timeperf/session/total": 20.0,
    "rollout/timeperf/session/queue": 1.0,
    "rollout/timeperf/session/generate": 18.0,
    "rollout/timeperf/session/tool_call": 4.0,
    "rollout/timeperf/session/reward": 0.5,
    "rollout/timeperf/session/idle": 0.1,
}
"""PPO on a mixture of experts, with asynchronous rollouts as sessions, some of whose phases overlap."""


def run_of(values: Mapping[str, float], **about: Any) -> Panel:
    """Four commits, half a second apart, of a run that began an hour before."""
    panel = Panel(**about)
    panel.add({"Train/iteration": 10.0} if "Train/iteration" in values else {}, step=10)
    panel.wait(3600)
    for step in range(97, 101):
        panel.add(values, after_s=0.5, step=step, env_steps=step * 1024)
    return panel


def sac_run() -> Panel:
    """All that a robot's panel can have."""
    panel = run_of(SAC, algo="sac", task="go2_joystick_flat")
    panel.facts = {
        "buffer": 1_000_000, "environments": 4096, "batch": 8192, "rows": 8192, "mps": "ambient",
        "max_iterations": 65_000,
    }  # fmt: skip
    return panel


def appo_run() -> Panel:
    """APPO, with nothing told."""
    return run_of(APPO, algo="appo", task="g1_walk")


def ppo_run() -> Panel:
    """PPO by rsl_rl."""
    panel = run_of(PPO, algo="ppo", task="go2_joystick_flat")
    panel.facts = {"max_iterations": 1500, "status": "Evaluating"}
    return panel


def llm_run() -> Panel:
    """LLM post-training, whose algorithm is nobody's family by name."""
    return run_of(LLM, algo="grpo", task="gsm8k")


def async_run() -> Panel:
    """LLM post-training with everything that there is to show."""
    panel = run_of(ASYNC, algo="ppo", task="gsm8k")
    panel.facts = {"max_iterations": 500}
    return panel


RUNS = {"sac": sac_run, "appo": appo_run, "ppo": ppo_run, "llm": llm_run, "async": async_run}

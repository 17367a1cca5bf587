"""Two walposts, one slot: the second waits and takes over."""


# Failure 82.
def test_a_second_instance_waits_and_takes_over(make_pipeline):
    p = make_pipeline().start()
    second = p.another().start(wait="standby")
    assert second.get("/livez")[0] == 200
    assert second.get("/readyz")[0] == 200
    p.insert_transactions(1, 2000)
    p.wait_confirmed()
    assert second.state() == "standby"
    p.walpost.kill9()
    second.wait_state("streaming", 60)
    p.walpost = second
    p.insert_transactions(2001, 3000)
    p.wait_confirmed()
    p.judge()
    assert second.stop() == 0


# Failure 82.
def test_an_orderly_stop_hands_over_without_repeats(make_pipeline):
    p = make_pipeline().start()
    second = p.another().start(wait="standby")
    p.insert_transactions(1, 5000)
    assert p.walpost.stop() == 0
    second.wait_state("streaming", 60)
    p.walpost = second
    p.insert_transactions(5001, 6000)
    p.wait_confirmed()
    assert p.judge() == 0

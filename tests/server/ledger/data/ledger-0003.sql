BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79532621739269256586e+09,'officer','population.create','people',NULL,NULL,'9f14ec312d83b121b688cd5f14a0ea4b','{"adjacency":"zero_out","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"reservation_seconds":null,"salt":"c604feb77d51097ba01336f0581e85eec1cf8aba7d3af66c9fd37629c54c9836","simulated":false,"two_persons":false,"unit":"user"}','5b079f4c3a46b110c0f45c9d75e01c5d4813692a4bba183fb78e2214828eaee1','e6d69d7c1c29b006e3239949bf66a21268e1088e4c875b90d59b2625281c9ef4');
INSERT INTO "audit" VALUES(2,1.79532621772133302688e+09,'officer','population.raise','people',NULL,NULL,'73b8f51f08affdb1010c090662cce641','{"delta":1e-06,"epsilon":5.0,"old":{"delta":1e-06,"epsilon":4.0},"reason":"agreed on 3 May"}','e6d69d7c1c29b006e3239949bf66a21268e1088e4c875b90d59b2625281c9ef4','f4959433ef0d627cdd767c7d7635a31cf85ed8e8b96ad41e6bd9559faeabbc98');
INSERT INTO "audit" VALUES(3,1.79532621773554015159e+09,'officer','population.create','others',NULL,NULL,'cba8fa70759c377d088b8363e50696f7','{"adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":1.0,"leak":1e-07,"reservation_seconds":null,"salt":"d62178a758f6b780720f07c77d082999d28ac61b643b06bb9875ad59b244d92d","simulated":false,"two_persons":false,"unit":"user"}','f4959433ef0d627cdd767c7d7635a31cf85ed8e8b96ad41e6bd9559faeabbc98','53f213face46f44c3c7db59b68c38ce4a4587f66378ca288bec573af51bec379');
INSERT INTO "audit" VALUES(4,1.79532621776330780978e+09,'officer','population.close','others',NULL,NULL,'031789edf1b012abddc36c3313b3a5e1','{"old":{"state":"open"},"reason":"the study is over","state":"closed"}','53f213face46f44c3c7db59b68c38ce4a4587f66378ca288bec573af51bec379','4803bd1b9a6bfcb9154d1cb292761958b816066fd1e24e9663a4a6f137d52a0f');
INSERT INTO "audit" VALUES(5,1.79532621777511620518e+09,'officer','token.create',NULL,NULL,NULL,'741be58d6c796378e3b41854a7b19032','{"digest":"dab360be0568ec1c4c3acdbfa907579e62ab9d7ab0803e9175b41ec2df1b8dd6","expires_at":null,"id":"d4df196cbd86","name":"page","populations":null,"scopes":["read"]}','4803bd1b9a6bfcb9154d1cb292761958b816066fd1e24e9663a4a6f137d52a0f','c9499415ffef15f8ea4e8658e442a82831e5b28a74337b2ef677f7f9fc068b7e');
INSERT INTO "audit" VALUES(6,1.79532621778616070752e+09,'officer','token.create',NULL,NULL,NULL,'16382b22f9598eb07d1a6a4d4a2f2168','{"digest":"1361416592b3f7065d55412d7480bc9db185d76f8578efcead39a076f916a1fb","expires_at":null,"id":"93886cf49b87","name":"office","populations":null,"scopes":["read","admin"]}','c9499415ffef15f8ea4e8658e442a82831e5b28a74337b2ef677f7f9fc068b7e','2421a92d057aaae1dd7934ac4b38a51cee098db7812168c0ce31fcfaa4e9b36f');
INSERT INTO "audit" VALUES(7,1.79532621779788184165e+09,'officer','token.revoke',NULL,NULL,NULL,'9ec587e64d800b61554764e204bf7a36','{"id":"d4df196cbd86"}','2421a92d057aaae1dd7934ac4b38a51cee098db7812168c0ce31fcfaa4e9b36f','c96904ebd197f2e2f57961558cf02e4b78d556de73414634025db8d9908d233e');
INSERT INTO "audit" VALUES(8,1.7953262178231172561e+09,'test','run.start','people','f1b92c1aa9fa',NULL,'2129647e466e46486f2b6f361cc654b7','{"format":1,"key_commitment":"285ab23677f97c68541aa48782e07b9ecfc122cbcdd5ed36a589d466ca4ef2f4","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','c96904ebd197f2e2f57961558cf02e4b78d556de73414634025db8d9908d233e','9911650d7ef9210d16835006c2e4800f9d00d89c132fd5dacf0f6e280afe5c9a');
INSERT INTO "audit" VALUES(9,1.7953262178450641632e+09,'run f1b92c1aa9fa','users.register','people','f1b92c1aa9fa',NULL,'7f0e542189595c0b6005932ae16136b5','{"count":40,"first":0,"hashes":"9be7db199e13c96d696093e59e7bec78dc757d84a5e92066dec65a1aa8a1b97f"}','9911650d7ef9210d16835006c2e4800f9d00d89c132fd5dacf0f6e280afe5c9a','d8ccdf45b7204cffda2180876bc1e871adc0992e0f2e15a3331a19f8c8c418c5');
INSERT INTO "audit" VALUES(10,1.79532621787450170514e+09,'run f1b92c1aa9fa','round.open','people','f1b92c1aa9fa',0,'195bbbbd990917cf4a83d370d0a31d4b','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','d8ccdf45b7204cffda2180876bc1e871adc0992e0f2e15a3331a19f8c8c418c5','ab48d11e298af9474084db8f1f69055424cc98757ccc8e54774bc24f2d3a89ab');
INSERT INTO "audit" VALUES(11,1.79532621789170074464e+09,'run f1b92c1aa9fa','round.commit','people','f1b92c1aa9fa',0,'81630080881e2fd1496c0c23f7f975d5','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','ab48d11e298af9474084db8f1f69055424cc98757ccc8e54774bc24f2d3a89ab','0bab7b6e8c534bdac0cf00b46bcdb7039fec38878804b45a2faebc2bb528d3cf');
INSERT INTO "audit" VALUES(12,1.79532621791261482241e+09,'run f1b92c1aa9fa','round.open','people','f1b92c1aa9fa',1,'85cf6c4cdba8785b8370850ceb7fc191','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','0bab7b6e8c534bdac0cf00b46bcdb7039fec38878804b45a2faebc2bb528d3cf','614a00011c1afde51351bed3a0a5ba23a69570ef6ffc69e862e65844279ae995');
INSERT INTO "audit" VALUES(13,1.79532621792545485491e+09,'run f1b92c1aa9fa','round.commit','people','f1b92c1aa9fa',1,'acba4c5452d03f0e2cbfe1e17804a227','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','614a00011c1afde51351bed3a0a5ba23a69570ef6ffc69e862e65844279ae995','4a999fc2a2b9f71b1fbc4983a1b37460f21b15f866b6b06af76f88ed4a69d1a0');
INSERT INTO "audit" VALUES(14,1.79532621793811464306e+09,'run f1b92c1aa9fa','round.open','people','f1b92c1aa9fa',2,'9c917f88c8b3fbacc82aa0e40b392fd2','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','4a999fc2a2b9f71b1fbc4983a1b37460f21b15f866b6b06af76f88ed4a69d1a0','1c424520eef50a48e6ef41c79d4e1a0396e5a676ea0f2e28fa054df84e2c07a0');
INSERT INTO "audit" VALUES(15,1.79532621794777870177e+09,'run f1b92c1aa9fa','round.commit','people','f1b92c1aa9fa',2,'78666f2e7106a854df35aa33b9e0978d','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','1c424520eef50a48e6ef41c79d4e1a0396e5a676ea0f2e28fa054df84e2c07a0','2ebde516bf3a03114c95f83215c6d490f0575b7af7c5107fc793ca8b48a8d539');
INSERT INTO "audit" VALUES(16,1.79532621795039343832e+09,'f1b92c1aa9fa','run.finish','people','f1b92c1aa9fa',NULL,'1728bceaefe6bc424bd2090c770b7acc','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','2ebde516bf3a03114c95f83215c6d490f0575b7af7c5107fc793ca8b48a8d539','064d751da2a027200ff20ca3bdef8170086c71e5fb632fdd9a967da5f0038471');
INSERT INTO "audit" VALUES(17,1.79532621797942185397e+09,'test','run.start','people','a7132931a6cc',NULL,'27088546df243126a2a0065a223449dc','{"format":1,"key_commitment":"3f78b308651e004b264c8c12fdff7c4d54685f47eb22776e2c1f994ec1fce348","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','064d751da2a027200ff20ca3bdef8170086c71e5fb632fdd9a967da5f0038471','d33408b27b52502c9f9a6d8f76f27ddb2a04091f81569a1a2320efc1e2455174');
INSERT INTO "audit" VALUES(18,1.79532621800532770153e+09,'run a7132931a6cc','round.open','people','a7132931a6cc',0,'a12160c69544bbbd51cd289ecbefeca9','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','d33408b27b52502c9f9a6d8f76f27ddb2a04091f81569a1a2320efc1e2455174','b3f2afa16ad5b195883882db80efc442d60b9c68b618d81f58d51392166ed849');
INSERT INTO "audit" VALUES(19,1.79532621801419973377e+09,'run a7132931a6cc','round.void','people','a7132931a6cc',0,'ce27b84bc6b1cb07c38802a18ee99980','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','b3f2afa16ad5b195883882db80efc442d60b9c68b618d81f58d51392166ed849','f8be1194ffbef5a24d301877bac7efe5ef7f803ea552eb91f834e9458dce98ef');
INSERT INTO "audit" VALUES(20,1.79532621802629947663e+09,'run a7132931a6cc','round.open','people','a7132931a6cc',0,'a042268d481a253057369b372715b3d3','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','f8be1194ffbef5a24d301877bac7efe5ef7f803ea552eb91f834e9458dce98ef','fed4ec88fe5344939169782c859c643570a105efdf4ddc089a03456b53e34b1f');
INSERT INTO "audit" VALUES(21,1.79532621803966164586e+09,'run a7132931a6cc','round.commit','people','a7132931a6cc',0,'1cbf0e8ebce1969259c5cab88c057b88','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','fed4ec88fe5344939169782c859c643570a105efdf4ddc089a03456b53e34b1f','35ea46412a9921eb6878fc8e831fa19af1c7185b367f186abd6dd31663ee98fb');
INSERT INTO "audit" VALUES(22,1.79532621805516576772e+09,'run a7132931a6cc','users.register','people','a7132931a6cc',NULL,'30290742fa8eae7fe3db6372c780c5f1','{"count":10,"first":40,"hashes":"b29d0ee347589001c0424e4c1d2fd244b1ecb8017f59b2db72fd54cdeb659f8f"}','35ea46412a9921eb6878fc8e831fa19af1c7185b367f186abd6dd31663ee98fb','a6a02835ec08c883e4fceb0e149b1e15cf14cac9a505c667420b5a36497e4284');
INSERT INTO "audit" VALUES(23,1.7953262180667347908e+09,'run a7132931a6cc','round.open','people','a7132931a6cc',1,'833295ecf1a839195b39ff96b73ca5fd','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','a6a02835ec08c883e4fceb0e149b1e15cf14cac9a505c667420b5a36497e4284','627cda4a4c44fd4b3860454dd38970f617e543f8074ca66d7cbcb811b056fdcd');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, signed TEXT, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'b5f98325d9d9922ee33c46d690ba8c35',23,'627cda4a4c44fd4b3860454dd38970f617e543f8074ca66d7cbcb811b056fdcd',NULL);
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79532621795039343832e+09,30.0);
INSERT INTO "leases" VALUES(2,'test',1,6,1.7953262180667347908e+09,30.0);
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003');
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004');
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005');
INSERT INTO "participations" VALUES(5,2,0,1,X'0178DA63050000060006');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, bound_epsilon DOUBLE DEFAULT '0' NOT NULL, bound_delta DOUBLE DEFAULT '0' NOT NULL, ceiling_epsilon DOUBLE, ceiling_delta DOUBLE, reservation_seconds DOUBLE, two_persons BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'6D414F80278A29329D204DE19E26A272',50,'{"mu_squared":0.08,"sampled":[]}',1.79532621739269256586e+09,'officer',8.67361737988403508001e-25,5.0,1.0e-06,NULL,NULL,NULL,0);
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'8C90B1217BA4722192E9DEB7CF2ECF74',0,'{"mu_squared":0.0,"sampled":[]}',1.79532621773554015159e+09,'officer',1.0e-07,1.0,1.0e-06,NULL,NULL,NULL,0);
CREATE TABLE proposals (
	id VARCHAR(20) NOT NULL, 
	population_id INTEGER NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reason TEXT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	proposed_at DOUBLE NOT NULL, 
	proposed_by VARCHAR(200) NOT NULL, 
	person VARCHAR(200) NOT NULL, 
	decided_at DOUBLE, 
	decided_by VARCHAR(200), 
	CONSTRAINT pk_proposals PRIMARY KEY (id), 
	CONSTRAINT fk_proposals_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79532621787450170514e+09,1.79532621789170074464e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79532621791261482241e+09,1.79532621792545485491e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79532621793811464306e+09,1.79532621794777870177e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79532621800532770153e+09,1.79532621801419973377e+09,NULL);
INSERT INTO "rounds" VALUES(5,2,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79532621802629947663e+09,1.79532621803966164586e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(6,2,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.7953262180667347908e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'f1b92c1aa9fa',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','285ab23677f97c68541aa48782e07b9ecfc122cbcdd5ed36a589d466ca4ef2f4',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.7953262178231172561e+09,'test',1.79532621795039343832e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL);
INSERT INTO "runs" VALUES(2,'a7132931a6cc',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','3f78b308651e004b264c8c12fdff7c4d54685f47eb22776e2c1f994ec1fce348',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79532621797942185397e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, populations TEXT, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('d4df196cbd86','page','dab360be0568ec1c4c3acdbfa907579e62ab9d7ab0803e9175b41ec2df1b8dd6','read',1.79532621777511620518e+09,'officer',NULL,1.79532621779788184165e+09,NULL);
INSERT INTO "tokens" VALUES('93886cf49b87','office','1361416592b3f7065d55412d7480bc9db185d76f8578efcead39a076f916a1fb','read admin',1.79532621778616070752e+09,'officer',NULL,NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'0348BF0AC41C1D7573EF4752FE9B4235E6B6BFDF3F0D545815EF379288103527E139CC108B42FC9EB8AA507ABC350A0322F7038FA702CF17AA2FAC3D10409381FAEB1E3F6024D9A55ABFBECAA1B2E6BB66BDB6A1D574D7FF9FBAC450B9B8AC94CE3C2D9ABF69858DC6AB9CADF75EEDF8496E7275E14720EC648E7243436ACE91B1000131AB5D8300F4F6EAFD0592853C469AA9F0943B0B25D32FAFDCC2F374FD7ED7396F3E4FFB97C9128109E529C7C69AE959EAADCB6AA91A429DC53CB2491A657E7E3963595601CDB0B3EC1DED6C171CD2B8EA8110ED2E25CE2446507A6F3105CD595448E493E41086329FD2A81B3B90BE2D55D64C4C30EC9BFC7DC916C149E314DC43DBD8974E6307B45F999C553CA709B6FACD11BD5902FF6954ADCEB5E483DA7A8AB99A65ADD7D4672E83E68EEC8C0653231311746FE659EB535EAFA450');
INSERT INTO "users" VALUES(1,40,10,X'D792551AFB196FF1A34D0B46F93C180426C468FB9AD55735AE35EAA0EB9F35C644438AD18132EBD7620FC6DB78C0D26BED7FF3E0C222C7F5A633EE3C6C85B39BE919137416F33A1B059A3FDD34E8110F');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
CREATE INDEX ix_audit_tokens ON audit (id) WHERE action IN ('token.create', 'token.revoke');
COMMIT;

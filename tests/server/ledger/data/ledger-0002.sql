BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
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
INSERT INTO "audit" VALUES(1,1.7953186745932939053e+09,'officer','population.create','people',NULL,NULL,'b7ef758c4a0056f3232eda0ad2431e7b','{"adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"salt":"e19d510dc1b81041910781a3995bc7f08f98f0fb9fe3b5a280b2e9244aa76c02","simulated":false,"unit":"user"}','644c6e9a0956949b0fc6245c412d43a644f30d556bf9caec45d38445de629e48','aae5242df6ba1824a0f52da3971da64b4796e3ca7baa05907f06c550d6b07778');
INSERT INTO "audit" VALUES(2,1.79531867460051798818e+09,'officer','population.raise','people',NULL,NULL,'e525029a76e656eed83ae1eb70c811e0','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','aae5242df6ba1824a0f52da3971da64b4796e3ca7baa05907f06c550d6b07778','00959484bf4f3eb3a2c93771d432de67612fcfec1ff6d3e846d4fe150a88c992');
INSERT INTO "audit" VALUES(3,1.7953186746088280678e+09,'officer','population.create','others',NULL,NULL,'0ac20784c0ad2e9bc9ce64bd4f547681','{"adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"leak":1e-07,"salt":"11cf974e570d50f84812d653e6c8e937832f6f6f4fb8d11e8eb6d84016e7a3a1","simulated":false,"unit":"user"}','00959484bf4f3eb3a2c93771d432de67612fcfec1ff6d3e846d4fe150a88c992','c270129356d776ac3753ac4605de82588c7dcf4cf6d3b1c6f3261bd69e42b827');
INSERT INTO "audit" VALUES(4,1.79531867461665606494e+09,'officer','population.close','others',NULL,NULL,'b2336652061191827f83e3ccacecbd4c','{}','c270129356d776ac3753ac4605de82588c7dcf4cf6d3b1c6f3261bd69e42b827','75953f66ef67b1ed6fc44762491209f3d304cddcf9eccd5694fdf61c8629af1f');
INSERT INTO "audit" VALUES(5,1.79531867461954951293e+09,'officer','token.create',NULL,NULL,NULL,'a2ec79652299cbed96913f73c338ff4a','{"digest":"6b77baff3520d349c336b5b447ca5ef5486d3e2f7024a7098079238d8560ee15","expires_at":null,"id":"2cdd3bdc90c6","name":"page","scopes":["read"]}','75953f66ef67b1ed6fc44762491209f3d304cddcf9eccd5694fdf61c8629af1f','166804a71ff539379ee160170597392926fb1696a1fbb3f7ed4441ce6a909343');
INSERT INTO "audit" VALUES(6,1.79531867462172508242e+09,'officer','token.create',NULL,NULL,NULL,'cdb5a565d746f2f10a9770d8f575bbda','{"digest":"5adda0e64d37c1f474e1c8e1699650920743b3968a49c2b06bf87559c437da98","expires_at":null,"id":"31febc5c107e","name":"office","scopes":["read","admin"]}','166804a71ff539379ee160170597392926fb1696a1fbb3f7ed4441ce6a909343','21e9acec7f1c6f8fbcc98e404b30ef542f0519a64bc9fddfab22c618bf09add1');
INSERT INTO "audit" VALUES(7,1.79531867462416982648e+09,'officer','token.revoke',NULL,NULL,NULL,'4776b6971079e493bfea0fa464bd908e','{"id":"2cdd3bdc90c6"}','21e9acec7f1c6f8fbcc98e404b30ef542f0519a64bc9fddfab22c618bf09add1','1716dae9b5ec3b30b5426d0de11ed7408812bdeed6399493d372aed551acb8cb');
INSERT INTO "audit" VALUES(8,1.79531867462700271608e+09,'test','run.start','people','2d1d8e3f4b77',NULL,'70082fbb38072bcc4f76571066f0c420','{"key_commitment":"eacd62eba42ff6f13f3002b2676cb7d20518de9a567fb1882e48d3c1f0699f26","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"trust_node_ids":false}','1716dae9b5ec3b30b5426d0de11ed7408812bdeed6399493d372aed551acb8cb','f3f48d5733ce6781a6fb646a4bd5d15f29583c94db0a5dd6081996848c44f274');
INSERT INTO "audit" VALUES(9,1.79531867463701486587e+09,'run 2d1d8e3f4b77','users.register','people','2d1d8e3f4b77',NULL,'19d7cf5dd4e8cc7c35f86c49a02384a9','{"count":40,"first":0,"hashes":"5af1849887c50347d93fad8fbf9bfcb42eee54dd3a7f7dd71a89f8434a1c974e"}','f3f48d5733ce6781a6fb646a4bd5d15f29583c94db0a5dd6081996848c44f274','4d311c6fe5a6c10935b4c762133f41d9ba971498af8661fe7bfa32017e565f22');
INSERT INTO "audit" VALUES(10,1.7953186746467130184e+09,'run 2d1d8e3f4b77','round.open','people','2d1d8e3f4b77',0,'bb3dabe1922bc0f7318050ef1bcd56bd','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','4d311c6fe5a6c10935b4c762133f41d9ba971498af8661fe7bfa32017e565f22','1f73f12efa54280a6a34fed242b40ec505559d75e6103b9a204281f15023b557');
INSERT INTO "audit" VALUES(11,1.79531867466764450073e+09,'run 2d1d8e3f4b77','round.commit','people','2d1d8e3f4b77',0,'f2ffc90dfa69188e1763abfdf5220eb4','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','1f73f12efa54280a6a34fed242b40ec505559d75e6103b9a204281f15023b557','10fa4c5a449adb1e1dedb6ecedad4946d9a6e74feed46d896476cf794958a4df');
INSERT INTO "audit" VALUES(12,1.79531867468176531792e+09,'run 2d1d8e3f4b77','round.open','people','2d1d8e3f4b77',1,'732e0af936294950e2d7506b3a60d9de','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','10fa4c5a449adb1e1dedb6ecedad4946d9a6e74feed46d896476cf794958a4df','79b9bb4569ded11256726185ab070e5e66bd84fe2e0e21b3e41775f2d3bad426');
INSERT INTO "audit" VALUES(13,1.79531867468918728825e+09,'run 2d1d8e3f4b77','round.commit','people','2d1d8e3f4b77',1,'564e5bc93c1da119d6ecedffb2701298','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','79b9bb4569ded11256726185ab070e5e66bd84fe2e0e21b3e41775f2d3bad426','960466b8ac9d2eba3677d9f7563b4db024761be31ec76e79b9b38f3168c8c6cf');
INSERT INTO "audit" VALUES(14,1.7953186746940970421e+09,'run 2d1d8e3f4b77','round.open','people','2d1d8e3f4b77',2,'658aa668c03006b990a3d2e9305e6e78','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','960466b8ac9d2eba3677d9f7563b4db024761be31ec76e79b9b38f3168c8c6cf','74297ea7a4890d807193fb5781be4ef06f18a6afe833695ed003dad43beaadf8');
INSERT INTO "audit" VALUES(15,1.79531867469611644745e+09,'run 2d1d8e3f4b77','round.commit','people','2d1d8e3f4b77',2,'edfb870a628acf65a28f5cec26804d55','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','74297ea7a4890d807193fb5781be4ef06f18a6afe833695ed003dad43beaadf8','f78f29eb2cd8a6a5bcf95cb98463db369319cea0ffc3e3a42ebe24f651a970ff');
INSERT INTO "audit" VALUES(16,1.79531867469907689097e+09,'2d1d8e3f4b77','run.finish','people','2d1d8e3f4b77',NULL,'096714917452017ab33bb397fd360dbd','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','f78f29eb2cd8a6a5bcf95cb98463db369319cea0ffc3e3a42ebe24f651a970ff','1e4cdd08cc82f87b8b70a307df4f2aed8e08886832783fbda5d8a6c29deac96b');
INSERT INTO "audit" VALUES(17,1.7953186747027885914e+09,'test','run.start','people','08094de9a355',NULL,'e4842e1f1c95ec4131975d4becd5421f','{"key_commitment":"45400cef42625b6aa79cc26aa46f4b3eae7ffd128d3a03fa76b8deaf7ea4993f","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"trust_node_ids":false}','1e4cdd08cc82f87b8b70a307df4f2aed8e08886832783fbda5d8a6c29deac96b','7da0177d38274b0b6a15cb892076d228a06aac176d968e747a361e529a5de0a7');
INSERT INTO "audit" VALUES(18,1.79531867470916175837e+09,'run 08094de9a355','round.open','people','08094de9a355',0,'874803aa95b4b9bf17b8e666c9e14309','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','7da0177d38274b0b6a15cb892076d228a06aac176d968e747a361e529a5de0a7','8482626bc90aa790041f64ea27a48b3447fb3fe21ca75fd9f77842f72c0b4a4c');
INSERT INTO "audit" VALUES(19,1.7953186747151789665e+09,'run 08094de9a355','round.void','people','08094de9a355',0,'10382f795316ed201d4d8d2aa8c38982','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','8482626bc90aa790041f64ea27a48b3447fb3fe21ca75fd9f77842f72c0b4a4c','00c6847d8101283f7942112327888c67245ce3af2151fba413cf338b35885f81');
INSERT INTO "audit" VALUES(20,1.79531867471820878985e+09,'run 08094de9a355','round.open','people','08094de9a355',0,'a967507cf04138cc333cb04e00ff7cc3','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','00c6847d8101283f7942112327888c67245ce3af2151fba413cf338b35885f81','191cbc21af4007e9f6b2e50477458989a139f3b74a9cf5da6f54beda98f00a4e');
INSERT INTO "audit" VALUES(21,1.7953186747226130962e+09,'run 08094de9a355','round.commit','people','08094de9a355',0,'b2b73b86d5e65d3bd7bdbf6331233390','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','191cbc21af4007e9f6b2e50477458989a139f3b74a9cf5da6f54beda98f00a4e','b1d272450a3f311354102b76249627ca14d6bd28b210d051c43b202d331826c7');
INSERT INTO "audit" VALUES(22,1.79531867472692942622e+09,'run 08094de9a355','users.register','people','08094de9a355',NULL,'7b363fe7eefaa8bd82e1c2731ba817b3','{"count":10,"first":40,"hashes":"38aa6ed36782b48c177294193ccd0bd64e8cfe531176a23bb94c60e810081cae"}','b1d272450a3f311354102b76249627ca14d6bd28b210d051c43b202d331826c7','4e137565056a019fb2109ec77ab854f396b2e1444eb43915d6d3e8bbbc97e3ca');
INSERT INTO "audit" VALUES(23,1.79531867472975420951e+09,'run 08094de9a355','round.open','people','08094de9a355',1,'095f98c9b27569c4ceafee7c5cd6adbc','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','4e137565056a019fb2109ec77ab854f396b2e1444eb43915d6d3e8bbbc97e3ca','0d3c07047c31e21742fca33bac34b7b7bede18b351c4d2c9d416d3ec9492e253');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'a9afc3d62f72949328a5fc7b45818d23',23,'0d3c07047c31e21742fca33bac34b7b7bede18b351c4d2c9d416d3ec9492e253');
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
INSERT INTO "leases" VALUES(1,'',2,8,1.79531867469907689097e+09,30.0);
INSERT INTO "leases" VALUES(2,'test',1,6,1.79531867472975420951e+09,30.0);
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
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'FFC1670B39308CE33AE7008A8A273BC6',50,'{"mu_squared":0.08,"sampled":[]}',1.7953186745932939053e+09,'officer',8.67361737988403508001e-25);
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'430370123CF63B452C29CC498879273F',0,'{"mu_squared":0.0,"sampled":[]}',1.7953186746088280678e+09,'officer',1.0e-07);
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
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.7953186746467130184e+09,1.79531867466764450073e+09,NULL);
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79531867468176531792e+09,1.79531867468918728825e+09,NULL);
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.7953186746940970421e+09,1.79531867469611644745e+09,NULL);
INSERT INTO "rounds" VALUES(4,2,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79531867470916175837e+09,1.7953186747151789665e+09,NULL);
INSERT INTO "rounds" VALUES(5,2,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79531867471820878985e+09,1.7953186747226130962e+09,NULL);
INSERT INTO "rounds" VALUES(6,2,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79531867472975420951e+09,NULL,NULL);
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
INSERT INTO "runs" VALUES(1,'2d1d8e3f4b77',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','eacd62eba42ff6f13f3002b2676cb7d20518de9a567fb1882e48d3c1f0699f26',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79531867462700271608e+09,'test',1.79531867469907689097e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',0,NULL);
INSERT INTO "runs" VALUES(2,'08094de9a355',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','45400cef42625b6aa79cc26aa46f4b3eae7ffd128d3a03fa76b8deaf7ea4993f',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.7953186747027885914e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',0,NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('2cdd3bdc90c6','page','6b77baff3520d349c336b5b447ca5ef5486d3e2f7024a7098079238d8560ee15','read',1.79531867461954951293e+09,'officer',NULL,1.79531867462416982648e+09);
INSERT INTO "tokens" VALUES('31febc5c107e','office','5adda0e64d37c1f474e1c8e1699650920743b3968a49c2b06bf87559c437da98','read admin',1.79531867462172508242e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'E2F1BABD4A0DA280D9F44282BBA9F68D8038D375BAEDB43157D5480345BED77F1349DBA5A582F09D88D21FCFA92E9D9B7C18FCDA03F6176FC6B5E077F1F85A048F3241EB70835DEB3C05EE7742DD559BEB42B2104130C439D07FFCFCB058179DAAD0B1D8BABF4E0A09F7F2E8A8D945A0FB7A2B11DF3B1AA3041C77631D54C1089F44CB50BBCAFD5D7F82653C97349A3BC945DD59A40A483CC494BE8EF803A52881D8168FD426D2C07B7BC87739879083CDEE0D8947CE8D8FC33B0DCDDD95B2BE38C71E10D4F11F02788D3743518853456B429FBD3611E3CF93915311BC27DFEBEF13AE5C3E63FC749F7F7F10624AF3CB3693A29079D010618D757DA8F3E1CFA43F7609902FE56E43346B187AD92B3B646184862BEB5C45F837808C786275A446C0BDF79B7B6334F5C5E48CA787382242900204AFA6860CB605A9AF4ACCCC5F1F');
INSERT INTO "users" VALUES(1,40,10,X'5F1697BEDEA5A460B4C3500A041ADEE1CE5941C006D79DAC52FCDCF0BFA1A1EC2FC90156FAA834A89FFB653D00082E700F89EA2FD01ED3DFFE610F510D7914807AD9FF4F4DEA4CBE30A0CBC687B31B9D');
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
COMMIT;
